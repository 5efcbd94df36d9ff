package trial

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// trialRun is the name of the run inside a trial's stack.
const trialRun = "try"

// inStack starts a whole stack in a directory, by default a temporary one, so that a
// trial uses the same parts as a run. It calls f with the stack and its warnings, and
// stops the stack afterwards.
func inStack(ctx context.Context, s *state.Flags, t *terminal.Terminal, sp spec.Spec, dir string, port int, f func(*stack.Stack, *observer.ObservedLogs) error) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "fulgurite-try-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	var queues []string
	if sp.Agent.Queue != workflows.QueueRollout {
		queues = append(queues, sp.Agent.Queue)
	}
	core, warnings := observer.New(zapcore.WarnLevel) // a trial reports what goes wrong
	if s.Verbose {
		core = zapcore.NewTee(s.Logger(ctx, t.Err).Core(), core)
	}
	st, err := stack.Start(ctx, stack.Options{
		Dir: dir, Frontend: port, Scratch: filepath.Join(dir, "homes"), Agents: builtin.Agents(), Queues: queues, Log: zap.New(core), ServerLog: s.ServerLogger(ctx, t.Err),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return f(st, warnings)
}
