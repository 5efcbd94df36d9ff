// Package chat implements `fulgurite chat`, which sends a question to a version through
// the run's own agent.
package chat

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Command is `fulgurite chat`.
type Command struct {
	Version string `arg:"" help:"RUN@NUMBER, RUN@promoted, RUN@newest, or RUN: the promoted version, or the newest where nothing is evaluated. RUN:POLICY in place of RUN names one of several policies."`
	Input   string `arg:"" help:"What to ask."`
	JSON    bool   `help:"Print JSON." name:"json"`

	Records state.RecordFlags `embed:""`
}

// answer is the JSON output of the command.
type answer struct {
	Version string         `json:"version"`
	Choice  catalog.Choice `json:"choice"` // how the version was chosen
	Input   string         `json:"input"`
	Answer  string         `json:"answer"`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{answer{}} }

// Run needs no stack: it samples from the records in this process, or from the servers
// that the run's spec names. The run's agent gets an attempt's address, as in training;
// the attempt's record is removed afterwards.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	v, choice, err := records.Catalog.Choose(ctx, c.Version)
	if err != nil {
		return err
	}
	sp, err := records.Catalog.Spec(ctx, v.Run)
	if err != nil {
		return err
	}
	if err := catalog.OnePolicy(sp, v.VersionID); err != nil {
		return err
	}
	if sp.Agent.Temporal != nil {
		return terminal.Usagef("the agent of run %s is %s of your own workers (agent.temporal), which only a stack can start: ask the version itself, as model %s at the address that `%s` prints",
			v.Run, sp.Agent.Temporal.Kind(), v.VersionID, s.Command("dev"))
	}
	conversation, err := newConversation(ctx, records, sp, v.VersionID, s.Logger(ctx, t.Err))
	if err != nil {
		return err
	}
	defer func() { _ = conversation.Close() }() // its records are of no further use
	result, err := conversation.ask(ctx, c.Input)
	if err != nil {
		return err
	}
	if result.Failed() {
		return fmt.Errorf("the agent failed (%s): %s", result.Failure,
			strings.TrimSpace(strings.Join([]string{result.Message, result.Stderr, conversation.refused()}, "\n")))
	}
	if err := c.print(t, v.String(), choice, result); err != nil {
		return err
	}
	if refused := conversation.refused(); refused != "" {
		return errors.New(refused)
	}
	return nil
}

// print writes the answer. Unless the output is JSON, it also writes the chosen version
// to standard error if no evaluation could have chosen it.
func (c *Command) print(t *terminal.Terminal, version string, choice catalog.Choice, result agent.Result) error {
	if c.JSON {
		return t.JSON(answer{version, choice, c.Input, result.Text})
	}
	if choice.Unevaluated() {
		fmt.Fprintf(t.Err, "%s (%s)\n", version, choice)
	}
	text := result.Text
	if t.TTY {
		text = strings.Map(printable, text)
	}
	t.Printf("%s\n", text)
	return nil
}

// printable replaces control characters.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}

// conversation runs a run's agent as RunAgent does, but outside of any stack: in an
// attempt with the run's terms, behind a forwarder and a gateway. The attempt is recorded
// in a temporary store, which Close removes, so that the run's records stay as they are.
type conversation struct {
	spec      spec.Spec
	version   model.VersionID
	prompts   string // the digest of the run's promoted ones
	launcher  agent.Launcher
	journal   *store.Store
	forwarder *forwarder.Forwarder
	watch     *callWatch
	closers   fleet.Closers
}

func newConversation(ctx context.Context, records fleet.Records, sp spec.Spec, v model.VersionID, log *zap.Logger) (_ *conversation, err error) {
	c := &conversation{spec: sp, version: v}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.prompts, _, err = records.Catalog.Prompts(ctx, v.Run, sp); err != nil {
		return nil, err
	}
	// A codec or launcher that can't be made is reported here. Later it would look like a
	// fault of the infrastructure, for which agents wait.
	if _, err := records.Codecs.Named(sp.Model.Codec); err != nil {
		return nil, err
	}
	if c.launcher, err = records.Launchers(builtin.Agents()).Launcher(sp); err != nil {
		return nil, err
	}
	if err := c.openJournal(ctx, log); err != nil {
		return nil, err
	}
	router := records.RouteLocally(1)
	c.closers.OnClose(func(context.Context) error { router.Close(); return nil })
	listener, err := fleet.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.watch = &callWatch{sampler: router}
	door := gateway.New(gateway.Config{Journal: c.journal, Sampler: c.watch, Codecs: records.Codecs.Named, Prompts: records.Prompts.Set, Log: log})
	server := fleet.Serve(listener, c.watch.around(door), log)
	c.closers.OnClose(server.Close)
	c.forwarder, err = forwarder.New(ctx, server.URL, log)
	if err != nil {
		return nil, err
	}
	c.closers.OnClose(c.forwarder.Close)
	return c, nil
}

func (c *conversation) openJournal(ctx context.Context, log *zap.Logger) error {
	dir, err := os.MkdirTemp("", "fulgurite-chat-")
	if err != nil {
		return err
	}
	c.closers.OnClose(func(context.Context) error { return os.RemoveAll(dir) })
	if c.journal, err = store.Open(ctx, filepath.Join(dir, "chat.db"), log); err != nil {
		return err
	}
	c.closers.OnClose(func(context.Context) error { return c.journal.Close() })
	return c.journal.Migrate(ctx)
}

// Close ends what was started and removes the attempt's record.
func (c *conversation) Close() error { return c.closers.Close(context.Background()) }

// ask runs the agent once. An error says that it could not be run, or that its calls
// could not be answered; refused says which calls were refused.
func (c *conversation) ask(ctx context.Context, input string) (agent.Result, error) {
	// A random task number gives the attempt its own seeds and home. So the same question
	// draws another answer each time, and several chats may run at once.
	number, err := rand.Int(rand.Reader, big.NewInt(1<<31))
	if err != nil {
		return agent.Result{}, err
	}
	rollout := record.RolloutID{Run: c.version.Run, Kind: record.Try, Task: int(number.Int64())}
	key := rand.Text()
	sum := sha256.Sum256([]byte(key))
	terms := activities.AttemptTerms(c.spec, c.version)
	terms.Prompts = c.prompts
	terms.Policies = nil // the version answers all requests
	address, err := c.journal.BeginAttempt(ctx, rollout, "chat", terms, hex.EncodeToString(sum[:]))
	if err != nil {
		return agent.Result{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(context.Canceled)
	c.watch.broken = stop
	environment, err := agent.Variables(c.spec.Agent.Environment, c.spec.Agent.SecretEnvironment)
	if err != nil {
		return agent.Result{}, err
	}
	session, err := c.forwarder.Open(ctx, address, key)
	if err != nil {
		return agent.Result{}, err
	}
	defer session.Close()
	result, err := c.launcher.Launch(session.Context(), agent.Job{
		Address: address, Execution: key, Task: agent.Task{ID: "chat", Input: input}, BaseURL: session.BaseURL(), Key: key,
		Directory: c.spec.Agent.Directory, Environment: environment,
		Limits: activities.AttemptLimits(c.spec), Waited: session.Waited, Idle: session.Idle,
	})
	if cause := context.Cause(ctx); cause != nil {
		return result, cause // the agent's result or error follows from this cause
	}
	session.Close() // only now are all faults known that the agent could have seen
	if err == nil {
		err = session.Fault()
	}
	if err != nil {
		return result, fmt.Errorf("run the agent of %s: %w", c.version, err)
	}
	return result, nil
}

// refused describes the model calls that the gateway refused. It returns "" if there were
// none.
func (c *conversation) refused() string { return c.watch.String() }

// callWatch notes the outcome of an agent's model calls in two places: between the
// forwarder and the gateway, and between the gateway and the sampler. A run waits for a
// sampler that fails; here the sampler's error is shown. The store records the refusals
// too, but neither their HTTP status nor the gateway's replies to its own faults.
type callWatch struct {
	sampler model.Sampler
	// broken receives the reason why a call could not be answered, if the agent is not at
	// fault.
	broken context.CancelCauseFunc

	mu       sync.Mutex
	calls    int
	refusals []string
}

// Sample implements model.Sampler.
func (w *callWatch) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	c, weights, err := w.sampler.Sample(ctx, v, r)
	refused := errors.Is(err, model.ErrPromptTooLong) || errors.Is(err, model.ErrRefused) || errors.Is(err, model.ErrForm)
	if err != nil && !refused && ctx.Err() == nil {
		w.broken(err)
	}
	return c, weights, err
}

// around notes which model calls h refuses.
func (w *callWatch) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !isModelCall(r) {
			h.ServeHTTP(rw, r)
			return
		}
		reply := &watchedReply{ResponseWriter: rw, status: http.StatusOK}
		h.ServeHTTP(reply, r)
		w.note(reply)
	})
}

func isModelCall(r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	for _, endpoint := range []string{"/completions", "/responses", "/messages"} {
		if strings.HasSuffix(r.URL.Path, endpoint) {
			return true
		}
	}
	return false
}

func (w *callWatch) note(r *watchedReply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if r.status < http.StatusBadRequest {
		return
	}
	w.refusals = append(w.refusals, fmt.Sprintf("%d %s: %s", r.status, http.StatusText(r.status), r.reason()))
	if r.status >= http.StatusInternalServerError {
		w.broken(errors.New("the model's call was answered with " + w.refusals[len(w.refusals)-1]))
	}
}

// String returns how many calls were refused and why the first of them was, or "" if
// there were none.
func (w *callWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refusals) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of the agent's %s %s refused, the first with %s", len(w.refusals), readable.Count(w.calls, "model call"), readable.WasOrWere(len(w.refusals)), w.refusals[0])
}

// watchedReply keeps the status of a reply, and its body if it is not a success.
type watchedReply struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// Unwrap gives http.ResponseController access to the connection.
func (r *watchedReply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *watchedReply) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *watchedReply) Write(data []byte) (int, error) {
	if r.status >= http.StatusBadRequest {
		r.body.Write(data)
	}
	return r.ResponseWriter.Write(data)
}

// reason returns the message in the body. Errors of OpenAI's and of Anthropic's APIs both
// have one. It returns the whole body if there is no message.
func (r *watchedReply) reason() string {
	var body struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal(r.body.Bytes(), &body); err != nil || body.Error.Message == "" {
		return r.body.String()
	}
	return body.Error.Message
}
