package upstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
)

// The types of server.
const (
	VLLM   = "vllm"
	SGLang = "sglang"
	OpenAI = "openai" // any server that takes messages and returns text
)

// How a server gets versions.
const (
	Adapters = "adapters" // each version is a LoRA adapter
	Reload   = "reload"   // one at a time
	None     = "none"     // never: it serves what it was started with
)

var (
	// ErrReply is wrapped if a server's answer is not what it should be.
	ErrReply = errors.New("bad reply of the server")
	// ErrVersion is wrapped where a server can't serve the version that was asked for.
	ErrVersion = errors.New("the server can't serve the version")
	// ErrAway is wrapped where no replica can be asked at the moment.
	ErrAway = errors.New("no server answers")
)

// Options says which servers to ask, and how.
type Options struct {
	Type     string   // VLLM, SGLang or OpenAI
	URLs     []string // replicas, without /v1
	Model    string   // its name at the servers
	Versions string   // Adapters, Reload or None
	Key      string   // the environment variable with the API key; empty for none
	// Directory is the directory in which versions lie, or are written, for the servers
	// to read.
	Directory string
	// Temperature is the run's temperature, at which Publish checks the log-probabilities
	// of the servers; 0 means 1.
	Temperature float64
	// Write writes a version as a Hugging Face directory and returns the digest of its
	// weights. It is needed with Reload.
	Write func(ctx context.Context, v model.VersionID, directory string) (weights string, err error)
	// Adapter finds a version's adapter, with Adapters. If it is nil or returns nil, an
	// external trainer leaves the adapters in Directory.
	Adapter func(ctx context.Context, v model.VersionID) (*Adapter, error)
	// Unused lists the ids without a token, which must not be sampled.
	Unused model.TokenRanges
	// Constrain finds stop texts in the content of replies. Without it, servers that get
	// token ids refuse requests with stop texts.
	Constrain model.Constrain
	// Lag is how many steps the version that samples may be behind the newest one.
	// Adapters further behind are unloaded.
	Lag int
	// Policies is how many policies of a run are sampled; 0 means 1.
	Policies int
	// Tolerance is how far, in nats, the log-probabilities of a server may be from the
	// trainer's: the root of the mean square over a canary's tokens. 0 means 0.3.
	Tolerance float64
	// ShareGPU says that the servers run on the GPU that trains: Sleep makes them give up
	// its memory, and calls wait until they are awake.
	ShareGPU bool
	// Retry is the shortest time for which a replica that failed is not asked; 0 means a
	// second. It doubles up to a minute.
	Retry time.Duration
}

// Sampler implements model.Sampler. It is safe for concurrent use.
type Sampler struct {
	options  Options
	protocol protocol
	replicas []*replica
	client   *http.Client
}

// protocol hides the differences between types of server.
type protocol interface {
	// sample asks a server and reads its whole reply, with the ids of its prompt if the
	// server returns them.
	sample(ctx context.Context, s *Sampler, r *replica, model string, request model.DecodeRequest) (reply, error)
	// load makes a server serve the version in the directory from now on, alone or in
	// addition to others.
	load(ctx context.Context, s *Sampler, r *replica, name, directory string) error
	// appliesTemperature reports whether a server returns the log-probabilities of the
	// distribution that it samples from even if the temperature is not 1.
	appliesTemperature(ctx context.Context, s *Sampler, r *replica, name string) (bool, error)
}

// reply is the reply of a server.
type reply struct {
	prompt     []int32 // as the server understood it; nil if it does not say
	completion model.Completion
	version    string // version that sampled; empty if the server does not say
	relayed    bool   // the tokens belong to dialog.Messages
}

// New returns a sampler. It connects on the first request.
func New(o Options) (*Sampler, error) {
	s := &Sampler{options: o, client: &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute,
	}}}
	if err := CheckUnused(o.Type, o.Unused); err != nil {
		return nil, err
	}
	switch {
	case o.Type == VLLM && o.Versions != Reload:
		s.protocol = vllm{newBiases(o.Unused)}
	case o.Type == SGLang && o.Versions != Adapters:
		s.protocol = sglang{newBiases(o.Unused)}
	case o.Type == OpenAI && o.Versions == None:
		s.protocol = &openAI{}
	default:
		return nil, fmt.Errorf("server of type %q with versions %q: there are vllm with adapters, sglang with reload, both with none, and openai with none", o.Type, o.Versions)
	}
	if len(o.URLs) == 0 {
		return nil, errors.New("no URL of a server")
	}
	if s.options.Retry == 0 {
		s.options.Retry = time.Second
	}
	if s.options.Tolerance == 0 {
		s.options.Tolerance = defaultTolerance
	}
	for _, u := range o.URLs {
		s.replicas = append(s.replicas, &replica{url: strings.TrimSuffix(u, "/"), retry: s.options.Retry})
	}
	return s, nil
}

// Sample implements model.Sampler.
func (s *Sampler) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	replica, err := s.choose(r.Prompt)
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s: %w", v, err)
	}
	c, weights, err := s.sampleAt(ctx, replica, v, r)
	replica.noteResult(err, ctx.Err() != nil)
	if err != nil && s.options.Versions == Adapters && ctx.Err() == nil && isFault(err) {
		replica.forgetVersions() // the server may come back without its adapters
	}
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("sample %s at %s: %w", v, replica.url, err)
	}
	c.Server = ServerName(replica.url)
	return c, weights, nil
}

// ServerName returns the name under which a server is recorded: its address without
// scheme, user and password.
func ServerName(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host + strings.TrimSuffix(u.Path, "/")
}

func (s *Sampler) sampleAt(ctx context.Context, at *replica, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	if err := s.awake(ctx, at); err != nil {
		return model.Completion{}, "", err
	}
	on, release, err := s.acquire(ctx, at, v)
	if err != nil {
		return model.Completion{}, "", err
	}
	defer release()
	if err := s.checkLogprobs(ctx, at, on.name, r.Temperature); err != nil {
		return model.Completion{}, "", err
	}
	got, err := s.sampleUntil(ctx, at, on.name, r)
	if isUnknown(err) && s.options.Versions == Adapters {
		at.forgetVersions() // it was started again, or another process unloaded the adapter
		if on, err = s.admit(ctx, at, v); err != nil {
			return model.Completion{}, "", err
		}
		if got, err = s.sampleUntil(ctx, at, on.name, r); isUnknown(err) {
			err = forgotten(err)
		}
	}
	if err == nil && !got.relayed {
		err = got.check(r, s.expected(v), s.options.Unused)
	}
	if errors.Is(err, ErrVersion) {
		at.forgetVersions() // another process changed its weights
	}
	if err != nil {
		return model.Completion{}, "", err
	}
	if r.Form.Masks() && !got.relayed {
		got.completion.Forced = make([]bool, len(got.completion.Tokens))
		for i := range got.completion.Forced {
			got.completion.Forced[i] = true
		}
	}
	return got.completion, on.weights, nil
}

// Publish makes a version ready at every replica. With Adapters, it then unloads the
// adapters that no step samples from any more. It wakes a replica that is still asleep
// because its trainer is gone.
func (s *Sampler) Publish(ctx context.Context, v model.VersionID) error {
	if err := s.Wake(ctx); err != nil {
		return fmt.Errorf("publish %s: %w", v, err)
	}
	if err := s.atEach(func(at *replica) error {
		on, release, err := s.acquire(ctx, at, v)
		if err == nil {
			defer release()
			err = s.checkLogprobs(ctx, at, on.name, s.options.Temperature)
		}
		if err != nil {
			return fmt.Errorf("publish %s at %s: %w", v, at.url, err)
		}
		return nil
	}); err != nil || s.options.Versions != Adapters {
		return err
	}
	if err := s.atEach(func(at *replica) error {
		if err := s.unloadBehind(ctx, at, v); err != nil {
			return fmt.Errorf("unload what is behind %s at %s: %w", v, at.url, err)
		}
		return nil
	}); err != nil {
		return err
	}
	return s.removeBehind(v)
}

// atEach calls do for all replicas at once.
func (s *Sampler) atEach(do func(at *replica) error) error {
	var all errgroup.Group
	for _, at := range s.replicas {
		all.Go(func() error { return do(at) })
	}
	return all.Wait()
}

// Close closes idle connections.
func (s *Sampler) Close() { s.client.CloseIdleConnections() }

// key returns the API key. It is read each time, so that it may change.
func (s *Sampler) key() string {
	if s.options.Key == "" {
		return ""
	}
	return os.Getenv(s.options.Key)
}

// score asks a server of type VLLM for the log-probabilities of given tokens after a
// prompt, at temperature 1, and for that of the likeliest token in the place of each.
func (s *Sampler) score(ctx context.Context, at *replica, name string, prompt, tokens []int32) (logprobs, best []float32, err error) {
	text := slices.Concat(prompt, tokens)
	in, err := vllm{}.request(name, model.DecodeRequest{Prompt: text, MaxTokens: 1, Temperature: 1})
	if err != nil {
		return nil, nil, err
	}
	in.PromptLogprobs = new(int)
	*in.PromptLogprobs = 1
	all, err := s.askApart(ctx, at, in)
	if err != nil {
		return nil, nil, err
	}
	if len(all.Choices) == 0 || len(all.Choices[0].PromptLogprobs) != len(text) {
		return nil, nil, fmt.Errorf("%w: it has no log-probabilities for the %d tokens of a prompt (prompt_logprobs)", ErrReply, len(text))
	}
	for i := len(prompt); i < len(text); i++ {
		likely := all.Choices[0].PromptLogprobs[i]
		of, ok := likely[strconv.Itoa(int(text[i]))]
		if !ok || math.IsNaN(of.Logprob) || math.IsInf(of.Logprob, 0) {
			return nil, nil, fmt.Errorf("%w: token %d of a prompt has no log-probability", ErrReply, i)
		}
		highest := of.Logprob
		for _, other := range likely {
			highest = max(highest, other.Logprob)
		}
		logprobs, best = append(logprobs, float32(of.Logprob)), append(best, float32(highest))
	}
	return logprobs, best, nil
}

// askApart asks a server about an adapter that no step samples from yet. The adapter may
// be wrong, and a repaired one may then be loaded under its name. So the server's cache
// must keep nothing that these weights computed for a prompt and that later calls could
// use.
func (s *Sampler) askApart(ctx context.Context, at *replica, in vllmRequest) (all vllmReply, err error) {
	in.CacheSalt = strconv.FormatUint(rand.Uint64(), 36)
	response, err := s.post(ctx, at.url+"/v1/completions", in) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return all, err
	}
	return all, readJSON(response, &all)
}

const (
	// maxBiased is how many ids vLLM takes in logit_bias. SGLang has no such bound.
	maxBiased = 1024
	// never is the least bias that servers take. It makes an id e^100 times less likely,
	// which is probability 0 for every purpose.
	never = -100
)

// biases are additions to logits by the id of their token, in the form of requests.
type biases map[string]float64

// newBiases returns what makes a server never sample the given ids.
func newBiases(unused model.TokenRanges) biases {
	if unused == "" {
		return nil
	}
	b := biases{}
	unused.Each(func(first, last int) {
		for id := first; id <= last; id++ {
			b[strconv.Itoa(id)] = never
		}
	})
	return b
}

// CheckUnused returns an error if a server of the given type can't be told to leave out
// so many ids without a token.
func CheckUnused(kind string, unused model.TokenRanges) error {
	if n := unused.Tokens(); kind == VLLM && n > maxBiased {
		return fmt.Errorf("%d rows of the model's vocabulary have no token, and a server of type %s can be told to leave out %d", n, kind, maxBiased)
	}
	return nil
}
