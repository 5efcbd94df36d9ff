package trial

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/stack"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// trialRun is the name of the run inside a trial's stack.
const trialRun = "try"

// stackOptions are of a trial's stack.
type stackOptions struct {
	dir  string // empty: a temporary one
	port int
	// faults notes why agents' calls are not answered.
	faults *faultLog
}

// inStack starts a whole stack in a directory of its own, so that what is tried is
// what will run, and stops it after f.
func inStack(ctx context.Context, s *state.Flags, t *terminal.Terminal, sp spec.Spec, o stackOptions, f func(*stack.Stack) error) (err error) {
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "fulgurite-try-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	}
	var queues []string
	if sp.Agent.Queue != workflows.QueueRollout {
		queues = append(queues, sp.Agent.Queue)
	}
	log := zap.New(o.faults) // what goes wrong is what a trial reports
	if s.Verbose {
		log = zap.New(zapcore.NewTee(s.Logger(ctx, t.Err).Core(), o.faults))
	}
	st, err := stack.Start(ctx, stack.Options{
		Dir: o.dir, Frontend: o.port, Scratch: filepath.Join(o.dir, "homes"), Agents: builtin.Agents(), Queues: queues, Log: log, ServerLog: s.ServerLogger(ctx, t.Err),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return f(st)
}
