package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
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
	rollout trace.RolloutID

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
		example: e, walk: w, rollout: trace.RolloutID{Run: e.Name, Kind: trace.Try, Task: number},
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
	return s.store.SealAttempt(ctx, trace.Attempt{Address: address, Outcome: trace.InfraFault, Error: err.Error()})
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
func (s *testEnv) begin(ctx context.Context) (trace.Address, error) {
	hash := sha256.Sum256([]byte(walkKey))
	return s.store.BeginAttempt(ctx, s.rollout, "walk", trace.Terms{
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
	return a, s.store.SealAttempt(ctx, trace.Attempt{Address: address, Outcome: trace.InfraFault})
}

func (s *testEnv) launch(ctx context.Context, address trace.Address) (agent.Result, error) {
	session, err := s.forwarder.Open(ctx, address, walkKey)
	if err != nil {
		return agent.Result{}, err
	}
	defer session.Close()
	command := agent.Command{Args: s.walk.Command, Scratch: filepath.Join(s.scratch, "homes")}
	result, err := agent.WithToolServers(command, s.tools.probes()).Launch(ctx, agent.Job{
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
func trained(calls []trace.Exchange) int {
	n := 0
	for _, s := range trace.Merge(trace.Calls(calls)) {
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
