package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

const (
	// walkTime is the most that a program may take, much more than any needs.
	walkTime = 3 * time.Minute
	// walkKey authenticates the attempts of walks, which no other process reaches.
	walkKey = "sk-walk"
)

// testEnv is the environment of one walk: everything between the program and the sampler is
// real.
type testEnv struct {
	example example
	walk    walk
	rollout record.RolloutID

	scratch   string
	store     *store.Store
	script    *script
	recorder  *recorder
	forwarder *forwarder.Forwarder
	tools     *runningServer
	traces    *fleet.TraceServer // nil unless the walk sends spans by gRPC
	closers   []func() error
}

// walkTwice makes two attempts at one walk. The first is sampled, and the second is
// answered from the record of the first. With show, the result includes the requests.
func walkTwice(ctx context.Context, e example, number int, w walk, show bool) result {
	r, err := runWalk(ctx, e, number, w, show)
	if err != nil {
		r.err = fmt.Errorf("walk %d, %s: %w", number, strings.Join(w.Command[1:], " "), err)
	}
	return r
}

func runWalk(ctx context.Context, e example, number int, w walk, show bool) (r result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &testEnv{
		example: e, walk: w, rollout: record.RolloutID{Run: e.Name, Kind: record.Try, Task: number},
		script: &script{replies: w.Replies, abort: cancel},
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return r, err
	}
	began := time.Now()
	first, err := s.attempt(ctx)
	if err != nil {
		return r, err
	}
	r.calls, r.trained = len(first.calls), trained(first.calls)
	replying, exact := first.continuations()
	r.remarks = []string{fmt.Sprintf("%s: %d calls by %s, stream %t, %d of %d that go on continue a reply's own tokens, %.1f s",
		e.Name, len(first.calls), w.API, w.Stream, exact, replying, time.Since(began).Seconds())}
	if w.Exact && exact != replying {
		return r, fmt.Errorf("%d of %d requests that contain a reply continue its own tokens, want all:%s", exact, replying, first.requests())
	}
	if show {
		r.remarks = append(r.remarks, first.requests(), first.showSpans())
	}
	if w.Fresh != "" {
		return r, nil
	}
	second, err := s.attempt(ctx)
	if err != nil {
		return r, fmt.Errorf("second attempt: %w", err)
	}
	if err := first.checkReplay(second); err != nil {
		return r, fmt.Errorf("second attempt: %w", err)
	}
	return r, s.killTools(ctx)
}

// killTools makes an attempt at another sample. If the walk says so, the server of tools
// is killed during the attempt. The attempt must then end with a fault, regardless of
// what the program does.
func (s *testEnv) killTools(ctx context.Context) error {
	if s.walk.KillServerAt == 0 {
		return nil
	}
	s.rollout.Sample++
	asked := 0
	s.script.before = func() {
		if asked++; asked == s.walk.KillServerAt {
			s.tools.kill()
		}
	}
	address, err := s.begin(ctx)
	if err != nil {
		return err
	}
	result, err := s.launch(ctx, address)
	if !errors.Is(err, agent.ErrToolServer) {
		return fmt.Errorf("the server of tools was killed at call %d, and that is no fault: result %q, failure %q, error %s", s.walk.KillServerAt, result.Text, result.Failure, fmt.Sprint(err))
	}
	return s.store.SealAttempt(ctx, record.Attempt{Address: address, Outcome: record.InfraFault, Error: err.Error()})
}

// open starts a store, a gateway and a forwarder.
func (s *testEnv) open(ctx context.Context) (err error) {
	if s.scratch, err = os.MkdirTemp("", "fulgurite-walk-"); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { return os.RemoveAll(s.scratch) })
	if s.tools, err = s.example.Server.start(ctx, s.example.Folder); err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { s.tools.kill(); return nil })
	if s.store, err = store.Open(ctx, filepath.Join(s.scratch, "journal.db"), zap.NewNop()); err != nil {
		return err
	}
	s.closers = append(s.closers, s.store.Close)
	if err := s.store.Migrate(ctx); err != nil {
		return err
	}
	listener, err := fleet.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	g := gateway.New(gateway.Config{Journal: s.store, Sampler: s.script, Codecs: dialog.Named})
	s.recorder = &recorder{gateway: g}
	if err := s.openTraces(ctx, g); err != nil {
		return err
	}
	server := fleet.Serve(listener, s.recorder, zap.NewNop())
	s.closers = append(s.closers, func() error { return server.Close(context.WithoutCancel(ctx)) })
	s.forwarder, err = forwarder.New(ctx, server.URL, zap.NewNop())
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func() error { return s.forwarder.Close(context.WithoutCancel(ctx)) })
	return nil
}

func (s *testEnv) close() error {
	var all []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		all = append(all, s.closers[i]())
	}
	return errors.Join(all...)
}

// begin allocates an attempt.
func (s *testEnv) begin(ctx context.Context) (record.Address, error) {
	hash := sha256.Sum256([]byte(walkKey))
	return s.store.BeginAttempt(ctx, s.rollout, "walk", record.Terms{
		Policy: model.DefaultPolicy, RunSeed: 1, Codec: dialog.CompactName, Temperature: 1, MaxTokens: 8192, Graded: true,
	}, hex.EncodeToString(hash[:]))
}

// attempt launches the program once and compares its result with the walk.
func (s *testEnv) attempt(ctx context.Context) (attemptRecord, error) {
	address, err := s.begin(ctx)
	if err != nil {
		return attemptRecord{}, err
	}
	before := len(s.recorder.exchanges())
	result, err := s.launch(ctx, address)
	a := attemptRecord{exchanges: s.recorder.exchanges()[before:]}
	if cause := context.Cause(ctx); cause != nil {
		return a, cause
	}
	if err != nil {
		return a, err
	}
	if a.calls, err = s.store.Exchanges(ctx, address); err != nil {
		return a, err
	}
	if a.spans, err = s.store.Spans(ctx, address); err != nil {
		return a, err
	}
	if err := errors.Join(a.checkAnswered(), s.checkResult(result), a.checkRecord(s.walk), a.checkSpans(s.walk)); err != nil {
		return a, err
	}
	return a, s.store.SealAttempt(ctx, record.Attempt{Address: address, Outcome: record.InfraFault})
}

func (s *testEnv) launch(ctx context.Context, address record.Address) (agent.Result, error) {
	session, err := s.forwarder.Open(ctx, address, walkKey)
	if err != nil {
		return agent.Result{}, err
	}
	defer session.Close()
	command := agent.Command{Args: s.walk.Command, Scratch: filepath.Join(s.scratch, "homes")}
	result, err := agent.WithToolServers(command, s.tools.probes(), nil).Launch(ctx, agent.Job{
		Address: address, Task: agent.Task{ID: "walk", Input: s.walk.Input, Metadata: s.walk.Metadata},
		BaseURL: session.BaseURL(), Key: walkKey, Directory: s.example.Folder, Environment: s.environment(),
		Limits: agent.Limits{Time: walkTime, OutputBytes: 1 << 20},
	})
	session.Close()
	return result, errors.Join(err, session.Fault())
}

// checkResult reports what keeps the program from the result that the walk wants.
func (s *testEnv) checkResult(r agent.Result) error {
	switch {
	case r.Failed():
		return fmt.Errorf("the program failed: %s\n%s", r.Message, tail(r.Stderr))
	case r.Text != s.walk.Result:
		return fmt.Errorf("the result is %q, want %q\n%s", r.Text, s.walk.Result, tail(r.Stderr))
	}
	return nil
}

// tail returns the end of a program's output, which says why it failed.
func tail(text string) string {
	const most = 1500
	return text[max(0, len(text)-most):]
}

// trained counts the tokens that a loss would see.
func trained(calls []record.Exchange) int {
	n := 0
	for _, s := range record.Merge(record.Calls(calls)) {
		n += s.Trained()
	}
	return n
}

// withoutComments returns an event stream without the comments that only keep its
// connection open.
func withoutComments(stream []byte) []byte {
	var out []byte
	for event := range bytes.SplitAfterSeq(stream, []byte("\n\n")) {
		if !bytes.HasPrefix(event, []byte(":")) {
			out = append(out, event...)
		}
	}
	return out
}

// isExport reports whether the exchange brought spans.
func (x *exchange) isExport() bool { return strings.HasSuffix(x.path, "/v1/traces") }

// openTraces starts a server that receives spans by gRPC, if the walk sends them so.
func (s *testEnv) openTraces(ctx context.Context, g *gateway.Gateway) error {
	if !s.walk.GRPC {
		return nil
	}
	listener, err := fleet.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.traces = fleet.ServeTraces(listener, g, zap.NewNop())
	s.closers = append(s.closers, func() error { return s.traces.Close(context.WithoutCancel(ctx)) })
	return nil
}

// environment returns the walk's environment, with the address of the gRPC server if
// there is one.
func (s *testEnv) environment() map[string]string {
	out := map[string]string{}
	maps.Copy(out, s.walk.Environment)
	maps.Copy(out, s.tools.environment())
	if s.traces == nil {
		return out
	}
	url := "http://" + s.traces.Address()
	out["OTEL_EXPORTER_OTLP_PROTOCOL"], out["OTEL_EXPORTER_OTLP_ENDPOINT"], out["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "grpc", url, url
	return out
}

// checkSpans compares the spans with the walk: a span must tell the agent of each call,
// and the tools that ran must be those of the walk.
func (a attemptRecord) checkSpans(w walk) error {
	if len(w.Agents)+len(w.Tools) == 0 {
		return nil
	}
	var agents, tools []string
	for i, name := range attribution.Of(a.calls, a.spans, nil) {
		if name.Source != attribution.Span {
			return fmt.Errorf("no span tells who made call %d: it is %s by %s, of %d spans", i, name.Agent, name.Source, len(a.spans))
		}
		agents = append(agents, name.Agent)
	}
	if !slices.Equal(agents, w.Agents) {
		return fmt.Errorf("the calls are of %q, want %q:%s", agents, w.Agents, a.showSpans())
	}
	ordered := slices.SortedFunc(slices.Values(a.spans), func(s, t record.Span) int { return cmp.Compare(s.Started.UnixNano(), t.Started.UnixNano()) })
	for _, s := range ordered {
		if s.Kind != record.ToolSpan {
			continue
		}
		tool := s.Tool
		if calls(a.calls, s.ToolCallID) {
			tool += " joined"
		}
		if s.Failed {
			tool += " failed"
		}
		tools = append(tools, tool)
	}
	if !slices.Equal(tools, w.Tools) {
		return fmt.Errorf("the tools that ran are %q, want %q:%s", tools, w.Tools, a.showSpans())
	}
	return nil
}

// calls reports whether one of the replies has the tool call.
func calls(all []record.Exchange, id string) bool {
	return id != "" && slices.ContainsFunc(all, func(c record.Exchange) bool { return bytes.Contains(c.Response, []byte(id)) })
}

// showSpans returns the content of the spans as readable text.
func (a attemptRecord) showSpans() string {
	var b strings.Builder
	for _, s := range a.spans {
		fmt.Fprintf(&b, "\n  span %s: kind %s, call %q, agent %q, tool %q, tool call %q, failed %t %.200s", s.Name, s.Kind, s.CallID, s.Agent, s.Tool, s.ToolCallID, s.Failed, s.Message)
		for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
			fmt.Fprintf(&b, "\n      %s = %.200v", name, s.Attributes[name])
		}
	}
	return b.String()
}

// toolServer is a server of tools that the programs of an example need.
type toolServer struct {
	// Command is run in the example's folder. It writes its address to standard error.
	Command []string `yaml:"command"`
	// Variable gets the address with Path in the environment of the programs.
	Variable string `yaml:"variable"`
	Path     string `yaml:"path"`
	// Health is the path that answers while the server is up.
	Health string `yaml:"health"`
}

// runningServer is a server that was started. Its zero value means that there is none.
type runningServer struct {
	toolServer
	url     string
	process *exec.Cmd
	drained chan struct{} // closed when its standard error was read to the end
}

var serverAddress = regexp.MustCompile(`http://[0-9.]+:[0-9]+`)

// start starts the server and waits for its address.
func (t *toolServer) start(ctx context.Context, folder string) (*runningServer, error) {
	if t == nil {
		return &runningServer{}, nil
	}
	program := t.Command[0]
	if !filepath.IsAbs(program) && filepath.Base(program) != program {
		program = filepath.Join(folder, program)
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	s := &runningServer{toolServer: *t, process: exec.CommandContext(ctx, program, t.Command[1:]...), drained: make(chan struct{})}
	s.process.Dir = folder
	stderr, err := s.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start the server of tools (`make build` makes it): %w", err)
	}
	lines, output := bufio.NewScanner(stderr), ""
	for s.url == "" && lines.Scan() {
		output += lines.Text() + "\n"
		s.url = serverAddress.FindString(lines.Text())
	}
	go func() {
		defer close(s.drained)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	if s.url == "" {
		s.kill()
		return nil, fmt.Errorf("the server of tools told no address:\n%s", tail(output))
	}
	return s, nil
}

// kill kills the server with SIGKILL. It may be called more than once.
func (s *runningServer) kill() {
	if s.process == nil || s.process.ProcessState != nil {
		return
	}
	_ = s.process.Process.Kill()
	<-s.drained
	_ = s.process.Wait()
}

// environment returns the variable that tells programs the address of the server.
func (s *runningServer) environment() map[string]string {
	if s.url == "" {
		return nil
	}
	return map[string]string{s.Variable: s.url + s.Path}
}

// probes returns the addresses that an agent's launcher probes.
func (s *runningServer) probes() []string {
	if s.url == "" {
		return nil
	}
	return []string{s.url + s.Health}
}

// specFor returns the path of the example's spec, or, if there is a server, of a copy
// that contains the server's current address.
func (s *runningServer) specFor(e example, directory string) (string, error) {
	file := filepath.Join(e.Folder, e.Spec)
	if s.url == "" {
		return file, nil
	}
	loaded, err := spec.Load(file)
	if err != nil {
		return "", err
	}
	if len(loaded.Agent.ToolServers) == 0 || loaded.Agent.Environment[s.Variable] == "" {
		return "", errors.New(e.Spec + " names no server of tools: want agent.tool_servers and agent.environment." + s.Variable)
	}
	loaded.Agent.Environment = maps.Clone(loaded.Agent.Environment)
	maps.Copy(loaded.Agent.Environment, s.environment())
	loaded.Agent.ToolServers = s.probes()
	text, err := json.Marshal(loaded)
	if err != nil {
		return "", err
	}
	file = filepath.Join(directory, e.Name+".json")
	return file, os.WriteFile(file, text, 0o600)
}
