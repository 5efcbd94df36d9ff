package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Server is an external sampling server that answered.
type Server struct {
	URL string `json:"url"`
	// Version is vLLM's version, empty for other servers.
	Version string `json:"version,omitempty"`
	// Models are the names that it serves, adapters among them.
	Models []ServedModel `json:"models"`
	// Adapters is how many adapters vLLM samples from at once, or 0 if it does not report
	// that.
	Adapters int `json:"adapters,omitempty"`
}

// ServedModel is a model that a server serves.
type ServedModel struct {
	ID string `json:"id"`
	// Context is the maximum number of tokens of prompt and reply together, or 0 if the
	// server does not report it.
	Context int `json:"max_model_len,omitempty"`
}

// answerBytes bounds the reply of a server.
const answerBytes = 4 << 20

// askServer asks for the models of the server at url, and for its version. key names the
// environment variable with its API key, if it wants one.
func askServer(ctx context.Context, url, key string) (Server, error) {
	s := Server{URL: strings.TrimRight(url, "/")}
	var list struct {
		Data []ServedModel `json:"data"`
	}
	if err := askJSON(ctx, s.URL+"/v1/models", key, &list); err != nil {
		return s, err
	}
	s.Models = list.Data
	var about struct {
		Version string `json:"version"`
	}
	if askJSON(ctx, s.URL+"/version", key, &about) == nil { // only vLLM has it
		s.Version = about.Version
	}
	if metrics, err := askText(ctx, s.URL+"/metrics", key); err == nil {
		s.Adapters = upstream.AdapterSlots(strings.NewReader(metrics))
	}
	return s, nil
}

func askJSON(ctx context.Context, url, key string, to any) error {
	text, err := askText(ctx, url, key)
	if err == nil && json.Unmarshal([]byte(text), to) != nil {
		err = fmt.Errorf("%s answered %q, which is not what was asked", url, shortened(text))
	}
	return err
}

// askText returns the reply of a GET request to url, up to answerBytes.
func askText(ctx context.Context, url, key string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+os.Getenv(key))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err // it names the address
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	switch {
	case err != nil:
		return "", fmt.Errorf("ask %s: %w", url, err)
	case response.StatusCode == http.StatusUnauthorized && key == "":
		return "", fmt.Errorf("%s needs an API key: name the environment variable that holds it in sampling.server.key", url)
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s answered %s", url, response.Status)
	}
	return string(body), nil
}

func (s Server) text() string {
	text := s.URL
	if s.Version != "" {
		text += ", vLLM " + s.Version
	}
	if s.Adapters > 0 {
		text += ", " + readable.Count(s.Adapters, "adapter") + " at once"
	}
	const shown = 5
	for i, m := range s.Models {
		if i == shown {
			text += fmt.Sprintf(", and %d more", len(s.Models)-shown)
			break
		}
		text += ", " + m.ID
		if m.Context > 0 {
			text += fmt.Sprintf(" (%d tokens)", m.Context)
		}
	}
	return text
}

// serves reports whether a model of that name is there.
func (s Server) serves(model string) bool {
	return slices.ContainsFunc(s.Models, func(m ServedModel) bool { return m.ID == model })
}

// isSilent reports whether err means that nothing listens at the address, or that nothing
// answered.
func isSilent(err error) bool {
	var late interface{ Timeout() bool }
	return errors.As(err, &late) && late.Timeout() || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "connection refused")
}

// probe is something to find out.
type probe struct {
	subject string
	needed  bool
	find    func(ctx context.Context) []Finding
}

// abandon is how much longer than its context a probe may take.
const abandon = 3 * time.Second

// findAll runs all probes at once and returns their findings in the order of the probes.
// Each has a context that ends after limit. A probe that goes on after that is abandoned:
// nothing can interrupt a goroutine that waits for a hanging driver or file system, and
// it ends with the program.
func findAll(ctx context.Context, limit time.Duration, probes []probe) []Finding {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	over, cancelOver := context.WithTimeout(ctx, limit+abandon)
	defer cancelOver()
	answers := make([]chan []Finding, len(probes))
	for i, p := range probes {
		answers[i] = make(chan []Finding, 1)
		go func() { answers[i] <- p.find(within) }()
	}
	var out []Finding
	for i, p := range probes {
		select {
		case found := <-answers[i]:
			out = append(out, found...)
		case <-over.Done():
			select {
			case found := <-answers[i]: // in time, while another was waited for
				out = append(out, found...)
			default:
				out = append(out, Finding{Subject: p.subject, State: orUnknown(p.needed), Text: silence(limit).Error()})
			}
		}
	}
	return out
}

// orUnknown returns the state of a thing whose probe did not answer: Missing if it is
// needed, else Unknown.
func orUnknown(needed bool) State {
	if needed {
		return Missing
	}
	return Unknown
}

// silence is the error of a probe that gave no answer within the limit.
type silence time.Duration

func (s silence) Error() string {
	return fmt.Sprintf("no answer within %s; --limit gives it longer", time.Duration(s))
}

// findStore opens the store that a flag names, and looks at the directory of blobs. In a
// data directory both are made when they are first needed.
func findStore(s *state.Flags, r state.RecordFlags) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		out := []Finding{{Subject: "store", State: Found, Text: "SQLite, in " + s.Dir}}
		if _, err := os.Stat(s.Layout().Database()); err == nil && r.Store == "" {
			if own := openStore(ctx, s.Layout().Database(), s.Command("dev")); own.State != Found {
				out = []Finding{own}
			}
		}
		if r.Store != "" {
			out = []Finding{openStore(ctx, r.Store, s.WorkerCommand("migrate"))}
		}
		if r.Blobs == "" {
			return out
		}
		f := Finding{Subject: "blobs", State: Found, Text: r.Blobs}
		if stat, err := os.Stat(r.Blobs); err != nil || !stat.IsDir() || !writable(r.Blobs) {
			f.State, f.Text = Missing, r.Blobs+" is not a directory that can be written here"
			f.Fix = []string{"mount the directory of blobs that all machines share there, or make it: mkdir -p " + shell.Quote(r.Blobs)}
		}
		return append(out, f)
	}
}

// openStore asks the store at url for its runs. migrate is the command that makes its tables.
func openStore(ctx context.Context, url, migrate string) Finding {
	kind, fix := "SQLite", migrate+" # makes it; or correct --store or FULGURITE_STORE"
	path, err := store.FilePath(url)
	if err != nil {
		return Finding{Subject: "store", State: Missing, Text: err.Error(), Fix: []string{"correct --store or FULGURITE_STORE"}}
	}
	if path == "" {
		kind, fix = "PostgreSQL", "start PostgreSQL, or correct the address in --store or FULGURITE_STORE; put the password into PGPASSWORD"
	} else if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) { // opening would make one
		return Finding{Subject: "store", State: Missing, Text: "no SQLite store at " + path, Fix: []string{fix}}
	}
	f := Finding{Subject: "store", State: Missing, Fix: []string{fix}}
	opened, err := store.Open(ctx, url, nil)
	if err != nil {
		f.Text = err.Error()
		if errors.Is(err, store.ErrUnusable) {
			f.Fix = []string{"name another store in --store or FULGURITE_STORE, or use the program of the store's release"}
		}
		return f
	}
	defer func() { _ = opened.Close() }() // nothing was written
	runs, err := opened.Runs(ctx)
	if err != nil {
		f.Text, f.Fix = kind+": "+err.Error(), []string{migrate + " # makes its tables"}
		return f
	}
	return Finding{Subject: "store", State: Found, Text: kind + " answers, with " + readable.Count(len(runs), "run")}
}

// Temporal is the server that commands here talk to.
type Temporal struct {
	Address   string `json:"address"`
	Namespace string `json:"namespace"`
	// SearchAttributes is whether ours are registered. Runs work without them.
	SearchAttributes bool `json:"search_attributes"`
	// Pollers is how many workers poll each queue.
	Pollers map[string]int `json:"pollers"`
}

// findTemporal connects as other commands do. A stack that does not run counts as absent,
// not as missing, because a command starts it and nothing has to be installed. A server
// that is configured but does not answer is missing.
func findTemporal(s *state.Flags, agents queue) func(context.Context) []Finding {
	return func(ctx context.Context) []Finding {
		silent := &terminal.Terminal{Out: io.Discard, Err: io.Discard}
		c, namespace, err := s.DialNamespace(ctx, silent)
		switch {
		case errors.Is(err, state.ErrNoStack):
			return []Finding{{Subject: "temporal", State: Absent, Text: "no stack runs in " + s.Dir, Fix: []string{s.Command("dev")}}}
		case err != nil:
			return []Finding{{Subject: "temporal", State: Missing, Text: err.Error(), Fix: []string{
				s.TemporalCommand(s.TemporalAddress()) + " # on the machine that TEMPORAL_ADDRESS names, or `unset TEMPORAL_ADDRESS` and use `" + s.Command("dev") + "`",
			}}}
		}
		defer c.Close()
		is := Temporal{Address: s.TemporalAddress(), Namespace: namespace, Pollers: map[string]int{}}
		return []Finding{describeTemporal(ctx, c, is, agents, s)}
	}
}

// queue is a task queue that workers poll.
type queue struct {
	name string
	kind enums.TaskQueueType
}

// describeTemporal adds to is what the server reports.
func describeTemporal(ctx context.Context, c client.Client, is Temporal, agents queue, s *state.Flags) Finding {
	f := Finding{Subject: "temporal", State: Found, Text: is.Address + ", namespace " + is.Namespace}
	var err error
	if is.SearchAttributes, err = (fleet.Cluster{Client: c, Namespace: is.Namespace}).HasSearchAttributes(ctx); err == nil && !is.SearchAttributes {
		f.Text += "; search attributes are not registered"
		f.Fix = append(f.Fix, s.WorkerCommand("migrate")+" # registers them; runs work without")
	}
	var idle []string
	for _, q := range []queue{
		{workflows.QueueTraining, enums.TASK_QUEUE_TYPE_WORKFLOW}, agents, {workflows.QueueTrainGPU, enums.TASK_QUEUE_TYPE_ACTIVITY},
	} {
		d, err := c.DescribeTaskQueue(ctx, q.name, q.kind)
		if err != nil {
			f.Text += fmt.Sprintf("; queue %s: %v", q.name, err)
			continue
		}
		if is.Pollers[q.name] = len(d.Pollers); len(d.Pollers) == 0 {
			idle = append(idle, q.name)
		}
	}
	if len(idle) > 0 {
		f.Text += "; no worker polls " + strings.Join(idle, ", ") + " now, unless it is busy"
		f.Fix = append(f.Fix, fmt.Sprintf("%s # or of a fleet `%s` (training, rollouts) and `%s` (train-gpu)", s.Command("dev"), s.WorkerCommand("cpu"), s.WorkerCommand("gpu")))
	}
	f.Facts = is
	return f
}
