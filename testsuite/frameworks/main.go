// Command frameworks runs the examples, as `make examples` does, and reports the outcome
// of each. It first runs the example's programs against fixed replies. If the example has
// a spec, it then makes a whole training run.
//
// A walk is one run of an example's program with the real launcher, forwarder and
// gateway. Its sampler gives the replies that example.yaml contains. The walk checks that
// the program accepts every reply, that no request is refused, that each call is recorded
// with its tokens, and that a second attempt is answered from that record.
//
// A training run uses `fulgurite train`. It checks that every attempt made calls, that
// tokens were trained, that rewards differed, and that the first update made the rewarded
// samples more probable.
//
// Folder clients beside the examples holds the clients of OpenAI and Anthropic to one
// account of the replies, by each API, whole and streamed.
//
// It installs nothing. .ci/examples does that.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v4"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

type cli struct {
	Names     []string `arg:"" optional:"" help:"Examples to run (default: all)."`
	Folder    string   `help:"Where the examples lie." default:"examples" type:"path"`
	Fulgurite string   `help:"The command that trains." default:"bin/fulgurite" type:"path"`
	Jobs      int      `help:"Most walks, or agents of a run, at once." default:"4"`
	WalkOnly  bool     `help:"Train nothing."`
	Train     []string `help:"Examples to train, of those that run (default: all)." env:"TRAIN"`
	Show      bool     `help:"Print what the programs ask for."`

	// secondTries is a file that gets a line for each example that passed only at its second
	// try; empty for none.
	secondTries string
}

func main() {
	var c cli
	c.secondTries = os.Getenv("SECOND_TRIES")
	kong.Parse(&c, kong.Description("Runs the examples and holds them to what they promise."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := c.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// trainings is how many runs are trained at once: while one computes an update, the agents
// of the other have the processors.
const trainings = 2

// maxAgain is how many examples may need a second try.
const maxAgain = 2

// run runs the examples and prints a line for each. Those that fail are run once more and
// alone, since a slow machine should not turn away a change; what passes only then is
// noted.
func (c *cli) run(ctx context.Context, out io.Writer) (err error) {
	examples, err := readExamples(c.Folder, c.Names)
	if err != nil {
		return err
	}
	t := trainer{command: c.Fulgurite, agents: c.Jobs}
	defer func() { err = errors.Join(err, t.close()) }()
	failed, err := c.runAll(ctx, out, examples, &t)
	if len(failed) == 0 || len(failed) > maxAgain || ctx.Err() != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "once more, after: %v\n", err)
	t.try = "-again"
	for _, e := range failed {
		if _, err := c.runAll(ctx, out, []example{e}, &t); err != nil {
			return err
		}
		line := "passed only at the second try: example " + e.Name
		_, _ = fmt.Fprintln(out, line)
		if err := c.note(line); err != nil {
			return err
		}
	}
	return nil
}

// note adds a line to the file of second tries.
func (c *cli) note(line string) (err error) {
	if c.secondTries == "" {
		return nil
	}
	f, err := os.OpenFile(c.secondTries, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = fmt.Fprintln(f, line)
	return err
}

// runAll first runs the walks of the examples, several at once, and then trains the
// examples. It prints one line for each. If one fails, the others still run. It returns
// those that failed, with the reasons.
func (c *cli) runAll(ctx context.Context, out io.Writer, examples []example, t *trainer) ([]example, error) {
	walked := c.walk(ctx, examples)
	ended := make([]chan result, len(examples))
	for i := range ended {
		ended[i] = make(chan result, 1)
	}
	go func() {
		var group errgroup.Group
		group.SetLimit(trainings)
		for i, e := range examples {
			r := walked[i]
			if r.err != nil || e.Spec == "" || !c.trains(e.Name) {
				ended[i] <- r
				continue
			}
			group.Go(func() error {
				ended[i] <- r.with(e.trainable(ctx, t))
				return nil
			})
		}
		_ = group.Wait() // results carry the errors
	}()
	var failed []example
	var reasons []error
	for i, e := range examples {
		r := <-ended[i]
		r.print(out, e.Name)
		if r.err != nil {
			failed = append(failed, e)
			reasons = append(reasons, fmt.Errorf("%s: %w", e.Name, r.err))
		}
	}
	return failed, errors.Join(reasons...)
}

// trains reports whether an example with a spec is to be trained.
func (c *cli) trains(name string) bool {
	return !c.WalkOnly && (len(c.Train) == 0 || slices.Contains(c.Train, name))
}

// walk returns the result of all walks of each example.
func (c *cli) walk(ctx context.Context, examples []example) []result {
	results := make([]result, len(examples))
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(c.Jobs)
	for i, e := range examples {
		for number, w := range e.Walks {
			group.Go(func() error {
				r := walkTwice(ctx, e, number, w, c.Show)
				mu.Lock()
				defer mu.Unlock()
				results[i] = results[i].with(r)
				return nil
			})
		}
	}
	_ = group.Wait() // results carry the errors
	return results
}

// exampleFile is the name of the file, in the folder of each example, that says what the
// example is checked for.
const exampleFile = "example.yaml"

// example is a folder with programs of one framework.
type example struct {
	Name   string `yaml:"-"` // name of the folder
	Folder string `yaml:"-"`
	// Spec is the spec of a training run, if there is one.
	Spec string `yaml:"spec"`
	// Needs is a command that succeeds if the spec can be trained. If it fails, only the
	// walks run, and a remark says so.
	Needs []string `yaml:"needs"`
	// Server is up while the programs run, if they need one.
	Server *toolServer `yaml:"server"`
	// Worker is a worker of Temporal's whose workflows are the agents of the training run,
	// run in the example's folder. It is shut down once while an agent runs, and started
	// again.
	Worker []string `yaml:"worker"`
	// Walks run a program against replies that are written down.
	Walks []walk `yaml:"walks"`
}

// walk is one run of a program, with the results that are required of it.
type walk struct {
	// Command is run as agent.command of a spec is, in the example's folder.
	Command []string `yaml:"command"`
	// Input is the input of the task.
	Input string `yaml:"input"`
	// Metadata is the metadata of the task.
	Metadata map[string]any `yaml:"metadata"`
	// Environment is added to the environment of each agent.
	Environment map[string]string `yaml:"environment"`
	// API is the API that all calls must use.
	API string `yaml:"api"`
	// Stream says whether the calls are answered with event streams.
	Stream bool `yaml:"stream"`
	// Replies are the possible replies of the sampler.
	Replies []reply `yaml:"replies"`
	// Result is the required result of the agent, and Calls the number of calls that it
	// must make.
	Result string `yaml:"result"`
	Calls  int    `yaml:"calls"`
	// Exact says that each request which contains a reply of the model has to continue that
	// reply's own tokens.
	Exact bool `yaml:"exact"`
	// Agents are the agents that made the calls, in order, according to the program's own
	// spans. Tools are the tools that ran, in order. " joined" follows a tool if it is
	// known which tool call asked for it, and " failed" follows a tool that failed. If
	// both lists are empty, spans are not checked.
	Agents []string `yaml:"agents"`
	Tools  []string `yaml:"tools"`
	// GRPC has the exporter send its spans by gRPC.
	GRPC bool `yaml:"grpc"`
	// KillServerAt is the number of a call. In a further attempt, the example's server is
	// killed before the reply to that call. The attempt must then end with a fault and
	// without a result.
	KillServerAt int `yaml:"kill_server_at"`
	// Fresh says, with the reason, that a second attempt does not repeat the
	// requests of the first.
	Fresh string `yaml:"fresh"`
}

// reply is the reply to a prompt that contains all of the texts in To. The first reply
// that fits is used. In both fields, special tokens are written by name, as in
// "<call>{}".
type reply struct {
	To  []string `yaml:"to"`
	Say string   `yaml:"say"`
}

// readExamples reads those with the given names, or all.
func readExamples(folder string, names []string) ([]example, error) {
	if len(names) == 0 {
		files, err := filepath.Glob(filepath.Join(folder, "*", exampleFile))
		if err != nil {
			return nil, fmt.Errorf("list the examples in %s: %w", folder, err)
		}
		for _, f := range files {
			names = append(names, filepath.Base(filepath.Dir(f)))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no example in %s: run this from the root of the repository, or say --folder", folder)
	}
	var out []example
	for _, name := range names {
		e, err := readExample(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("read example %s: %w", name, err)
		}
		out = append(out, e)
	}
	return out, nil
}

func readExample(folder string) (example, error) {
	text, err := os.ReadFile(filepath.Join(folder, exampleFile))
	if err != nil {
		return example{}, err
	}
	e := example{Name: filepath.Base(folder), Folder: folder}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&e); err != nil {
		return example{}, fmt.Errorf("%s: %w", exampleFile, err)
	}
	if len(e.Walks) == 0 && len(e.Worker) == 0 {
		return example{}, fmt.Errorf("%s: walks is empty: name a program and its replies", exampleFile)
	}
	if s := e.Server; s != nil && (len(s.Command) == 0 || s.Variable == "") {
		return example{}, fmt.Errorf("%s: server needs command and variable", exampleFile)
	}
	for i := range e.Walks {
		if err := e.Walks[i].check(); err != nil {
			return example{}, fmt.Errorf("%s: walks[%d].%w", exampleFile, i, err)
		}
		e.Walks[i].resolve(folder)
	}
	return e, nil
}

func (w walk) check() error {
	switch {
	case len(w.Command) == 0:
		return errors.New("command is missing")
	case len(w.Replies) == 0:
		return errors.New("replies is empty: the sampler has nothing to say")
	case w.Calls < 1:
		return fmt.Errorf("calls is %d: want at least 1", w.Calls)
	case !slices.Contains([]string{"chat", "completions", "responses", "messages"}, w.API):
		return fmt.Errorf("api is %q: want chat, completions, responses or messages", w.API)
	}
	return nil
}

// resolve makes a program with a slash relative to the example, as in a spec.
func (w *walk) resolve(folder string) {
	if program := w.Command[0]; strings.Contains(program, "/") && !filepath.IsAbs(program) {
		w.Command[0] = filepath.Join(folder, program)
	}
}

// scriptWeights takes the place of the digest of weights.
var scriptWeights = strings.Repeat("5c", 32)

// script is a sampler that says what is written down for a prompt. Equal prompts
// get equal replies, as of any sampler.
type script struct {
	replies []reply
	// abort ends the walk: the gateway would take an error for a fault that passes,
	// and ask again.
	abort func(error)
	// before, if not nil, runs before each reply.
	before func()
	tokens tokenizer.Bytes
}

// Sample implements model.Sampler.
func (s *script) Sample(_ context.Context, _ model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	if s.before != nil {
		s.before()
	}
	prompt := s.show(r.Prompt)
	for _, reply := range s.replies {
		if reply.answers(prompt) {
			c, err := s.complete(reply.Say, r)
			if err != nil {
				s.abort(err)
			}
			return c, scriptWeights, err
		}
	}
	err := fmt.Errorf("no reply is written down for the prompt %s", prompt)
	s.abort(err)
	return model.Completion{}, "", err
}

func (r reply) answers(prompt string) bool {
	for _, text := range r.To {
		if !strings.Contains(prompt, text) {
			return false
		}
	}
	return true
}

// show writes a prompt with special tokens by name.
func (s *script) show(prompt []int32) string { return dialog.Compact().Text(prompt) }

// complete returns text as a completion within the limits and the form of the request.
func (s *script) complete(text string, r model.DecodeRequest) (model.Completion, error) {
	c := model.Completion{Tokens: append(s.read(text), tokenizer.End), Finish: "stop"}
	if len(c.Tokens) > r.MaxTokens {
		c.Tokens, c.Finish = c.Tokens[:r.MaxTokens], "length"
	}
	if r.Form != nil {
		var err error
		if c.Forced, err = s.fits(c.Tokens, *r.Form); err != nil {
			return c, fmt.Errorf("the reply %q: %w", text, err)
		}
	}
	for i, token := range c.Tokens {
		logprob := -float32(i%7+1) / 8
		c.Logprobs = append(c.Logprobs, logprob)
		if r.Emit != nil {
			r.Emit(token, logprob)
		}
	}
	return c, nil
}

// fits follows tokens through a form and marks those that had no alternative.
func (s *script) fits(tokens []int32, form model.Form) ([]bool, error) {
	c, err := dialog.Constrain(form)
	if err != nil {
		return nil, err
	}
	forced := make([]bool, len(tokens))
	for i, token := range tokens {
		set := model.NewTokenSet(s.tokens.VocabSize())
		if c.Allowed(set) {
			if !set.Has(token) {
				return nil, fmt.Errorf("token %d, %q, does not fit the form that the request asks for", i, s.tokens.Name(token))
			}
			forced[i] = s.only(set)
		}
		c.Accept(token)
	}
	return forced, nil
}

func (s *script) only(set model.TokenSet) bool {
	n := 0
	for id := range int32(s.tokens.VocabSize()) {
		if set.Has(id) {
			n++
		}
	}
	return n == 1
}

// read turns text with special tokens by name into tokens.
func (s *script) read(text string) []int32 {
	var out []int32
	for text != "" {
		next, id := len(text), int32(-1)
		for special := range int32(s.tokens.VocabSize()) {
			if !s.tokens.Special(special) {
				break
			}
			if at := strings.Index(text, s.tokens.Name(special)); at >= 0 && at < next {
				next, id = at, special
			}
		}
		out = append(out, s.tokens.Encode(text[:next])...)
		text = text[next:]
		if id >= 0 {
			out = append(out, id)
			text = strings.TrimPrefix(text, s.tokens.Name(id))
		}
	}
	return out
}
