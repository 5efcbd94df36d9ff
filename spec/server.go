package spec

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/fulgurite/fulgurite/internal/subprocess"
	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Server is an external inference server that samples.
type Server struct {
	// Type is "vllm" or "sglang", which take and return token ids, or "openai" for any
	// other server that takes messages. With "openai" nothing can be trained.
	Type string `json:"type"`
	// URLs are the addresses of replicas that serve the same model, without /v1.
	URLs []string `json:"urls"`
	// Model is the name of the model at the server.
	Model string `json:"model"`
	// Versions says how a version is loaded: "adapters" keeps several as LoRA adapters,
	// "reload" makes the server load one at a time, "none" serves the base model alone, so
	// that nothing can be trained. Absent means "adapters" for vllm, "reload" for sglang
	// and "none" for openai.
	Versions string `json:"versions,omitempty"`
	// Key is the name of the environment variable that holds the API key. The process that
	// samples reads it.
	Key string `json:"key,omitempty"`
	// ShareGPU says that the servers run on the GPU that trains: they sleep during
	// updates, and calls wait for them. Only with servers of type "vllm" that were started
	// with --enable-sleep-mode, and with versions "adapters".
	ShareGPU bool `json:"share_gpu,omitempty"`
	// Directory is where versions are written for the server to read. Required, except
	// with versions "none".
	Directory string `json:"directory,omitempty"`
	// Tolerance is how far, in nats, a server's log-probabilities of a version's canary
	// may be from the trainer's: the root of the mean square over the canary's tokens.
	// Absent or 0 means 0.3. Only with versions "adapters".
	Tolerance float64 `json:"tolerance,omitempty"`
	// Mismatch is the largest value of the metric train/mismatch, in nats, with which a
	// step is trained. A larger one ends the run. Absent or 0 means 0.2 without a
	// training.lag, and no limit with one. Not with versions "none".
	Mismatch float64 `json:"mismatch,omitempty"`
	// WorstMismatch is the largest value of the metric train/mismatch_max, the mismatch of
	// a single token, in nats, with which a step is trained. Absent or 0 means no limit.
	// Not with versions "none".
	WorstMismatch float64 `json:"worst_mismatch,omitempty"`
}

// Trainable reports, as *Faults, why no weights can be trained with s, although s can be
// tried and evaluated.
func (s Spec) Trainable() error {
	server := s.WithDefaults().Sampling.Server
	f := &Faults{}
	switch {
	case len(s.Phases) > 0: // Validate checks each phase
	case s.Evaluation.Only != "":
		f.add("evaluation.only", "leave it out to train, or use `fulgurite evaluate SPEC`", "nothing is trained by a run that only evaluates")
	case s.Optimizer != nil:
		f.add("optimizer", "leave it out to train, or use `fulgurite optimize SPEC`", "a run with it improves prompts and trains no weights")
	case server == nil:
	case server.Type == ServerOpenAI:
		f.add("sampling.server.type", "train with vllm or sglang, or leave sampling.server out for the built-in sampler",
			"a server of type openai gives no token ids, and tokenizing its text again may give other tokens than were sampled")
	case server.Versions == VersionsNone:
		f.add("sampling.server.versions", "give "+server.defaultVersions(), "the server would never sample from what was trained")
	}
	return f.err()
}

// defaultMismatch, in nats, is five times the average effect of BF16 on the
// log-probability of a token of text under SmolLM2-135M (0.04), and a fraction of the
// effect of wrong weights.
const defaultMismatch = 0.2

// defaultVersions returns how servers of this type load versions.
func (s Server) defaultVersions() string {
	switch s.Type {
	case ServerSGLang:
		return VersionsReload
	case ServerOpenAI:
		return VersionsNone
	}
	return VersionsAdapters
}

func (s Server) check(f *Faults, all Spec) {
	const at = "sampling.server."
	if s.Type == "" {
		f.add(at+"type", "give one of "+strings.Join(choices(at+"type"), ", "), "missing")
	} else {
		f.choice(at+"type", s.Type)
	}
	if len(s.URLs) == 0 {
		f.add(at+"urls", "give the addresses of the servers", "missing")
	}
	for i, u := range s.URLs {
		key := fmt.Sprintf("%surls[%d]", at, i)
		f.baseURL(key, u)
		if strings.HasSuffix(strings.TrimRight(u, "/"), "/v1") {
			f.add(key, "leave it out", "%q ends in /v1, which is added to the address", u)
		}
	}
	if s.Model == "" {
		f.add(at+"model", "give the model's name at the server", "missing")
	}
	f.name(at+"model", s.Model)
	f.variable(at+"key", s.Key)
	f.choice(at+"versions", s.Versions)
	if s.Versions != VersionsNone && s.Versions != s.defaultVersions() {
		f.add(at+"versions", "give adapters with vllm, reload with sglang, or none", "%s does not load versions this way", s.Type)
	}
	relays := s.Type == ServerOpenAI
	if relays != (all.Model.Codec == CodecMessages) {
		f.add("model.codec", "leave it out", `sampling.server.type "openai" takes messages, and no other takes them`)
	}
	f.unused("model.warm_start", relays && all.Model.WarmStart != nil, `sampling.server.type "openai" never samples from what was trained`)
	if s.Versions == VersionsReload && all.Training.Lag > 0 {
		f.add("training.lag", "give 0, or leave sampling.server out",
			"a server that holds one version at a time can't sample from several")
	}
	if t := all.Sampling.Temperature; t != nil && *t > 2 && s.Type != ServerSGLang {
		f.add("sampling.temperature", "give at most 2", "a server of type %s takes no %g", s.Type, *t)
	}
	f.unused(at+"share_gpu", s.ShareGPU && (s.Type != ServerVLLM || s.Versions != VersionsAdapters), `only a server of type vllm with versions "adapters" sleeps`)
	f.number(at+"tolerance", s.Tolerance, bounds.Between(0, 100))
	f.unused(at+"tolerance", s.Tolerance != 0 && s.Versions != VersionsAdapters, `only sampling.server.versions "adapters" is compared with the trainer`)
	f.number(at+"mismatch", s.Mismatch, bounds.Between(0, 100))
	f.number(at+"worst_mismatch", s.WorstMismatch, bounds.Between(0, 1000))
	if s.Versions == VersionsNone {
		const untrained = `nothing is trained with sampling.server.versions "none"`
		f.unused(at+"mismatch", s.Mismatch != 0, untrained)
		f.unused(at+"worst_mismatch", s.WorstMismatch != 0, untrained)
		f.unused(at+"directory", s.Directory != "", `sampling.server.versions "none" loads nothing`)
	} else if s.Directory == "" {
		f.add(at+"directory", "give a directory that the servers can read", "missing")
	}
}

// url checks that address is an HTTP or HTTPS address.
func (f *Faults) url(key, address string) {
	u, err := url.Parse(address)
	if err == nil && u.User != nil {
		f.add(key, credentialRemedy(key), "a user or a password in the address, which everyone reads who sees the spec")
		return
	}
	if address == "" || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		f.add(key, "give an address such as http://127.0.0.1:8000", "%q is not an HTTP address", withoutCredentials(address))
		return
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > maxPort) {
		f.add(key, fmt.Sprintf("give one from 1 to %d", maxPort), "%s is not a port", u.Port())
	}
	if strings.ContainsRune(address, '#') {
		f.add(key, "remove it", "what follows # in an address is never sent")
	}
}

const maxPort = 65535

// baseURL checks an HTTP address to which the paths of an API are added.
func (f *Faults) baseURL(key, address string) {
	f.url(key, address)
	if strings.ContainsRune(address, '?') {
		f.add(key, "remove it", "what follows ? in the address is lost, because the paths of the API are added to it")
	}
}

// servingKey is the variable with the key of /v1 of the fleet's own gateway. Its versions can be
// asked like any other server.
const servingKey = "FULGURITE_SERVING_KEY"

// variable checks the name of the environment variable that holds the key of a server, if there
// is one. The message does not repeat the text, because it may be the secret itself.
func (f *Faults) variable(key, name string) {
	if name != "" && !variableName.MatchString(name) {
		f.add(key, "give the name of an environment variable, such as API_KEY, and never the secret itself", "no name of an environment variable")
	}
	if name != servingKey {
		f.ofFleet(key, name)
	}
}

// ofFleet refuses the names of variables that give access to the fleet itself: a spec would
// send their values to a server or an agent.
func (f *Faults) ofFleet(key, name string) {
	if subprocess.OfFleet(name) {
		f.add(key, "put what the spec needs into a variable of its own", "%s gives access to the fleet and its store", name)
	}
}

// name checks a name that others look up: white space around it is a mistake, and makes
// another name of it.
func (f *Faults) name(key, name string) {
	if strings.TrimSpace(name) != name {
		f.add(key, "remove it", "white space around the name %q", name)
	}
}

// withoutCredentials leaves out what may be a password in an address that can't be read.
func withoutCredentials(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	scheme, _, ok := strings.Cut(address, "//")
	if !ok {
		return address[at+1:]
	}
	return scheme + "//" + address[at+1:]
}

func credentialRemedy(key string) string {
	switch key {
	case "agent.service.url":
		return "remove it, and name the environment variable that holds the header Authorization in agent.service.secret_headers"
	case "credit.judge.url":
		return "remove it, and name the environment variable that holds the API key in credit.judge.key"
	}
	return "remove it"
}

// MismatchMean returns the limit of train/mismatch in a run with the given lag; 0 means no
// limit.
func (s Server) MismatchMean(lag int) float64 {
	if s.Mismatch == 0 && lag == 0 {
		return defaultMismatch
	}
	return s.Mismatch
}

// queueBytes is the longest name of a task queue.
const queueBytes = 200

// ownQueues are the task queues of Fulgurite's own activities and workflows.
func ownQueues() []string { return []string{"training", "train-gpu"} }

// CheckQueue says what is wrong with the name of a task queue for agents, and what to do.
// Both are empty if nothing is. A worker gets several names separated by commas, so a name
// contains none.
func CheckQueue(name string) (wrong, remedy string) {
	switch {
	case strings.TrimSpace(name) == "":
		return "no name", "give the name of a task queue"
	case strings.TrimSpace(name) != name:
		return "white space around the name", "remove it"
	case strings.ContainsRune(name, ',') || strings.ContainsFunc(name, unicode.IsControl):
		return "a comma or a control character in the name", "give a name without it"
	case len(name) > queueBytes:
		return "the name is too long", "give a name of at most 200 bytes"
	case strings.HasPrefix(name, "/_sys/"):
		return "Temporal keeps names with /_sys/ for itself", "give another name"
	case slices.Contains(ownQueues(), name):
		return "Fulgurite's own workers poll this queue for other work", "give another name"
	}
	return "", ""
}

// ParseQueues returns the names of a list of task queues for agents, without the white
// space around them and each once.
func ParseQueues(names []string) ([]string, error) {
	var all []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if wrong, remedy := CheckQueue(name); wrong != "" {
			return nil, fmt.Errorf("queue %q: %s; %s", name, wrong, remedy)
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

func (f *Faults) queue(key, name string) {
	if wrong, remedy := CheckQueue(name); wrong != "" {
		f.add(key, remedy, "%s", wrong)
	}
}
