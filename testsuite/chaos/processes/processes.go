// Package processes starts a whole fleet of real processes on one machine, including
// PostgreSQL and Temporal. A test can kill, suspend and restart them.
//
//	f, err := processes.Start(ctx, processes.Options{Dir: dir, Bin: "bin"})
//	…
//	f.Kill(processes.Gateway)
//	f.Restart(ctx, processes.Gateway)
//	f.Hang(processes.Sampler)
//	f.Resume(processes.Sampler)
//	err = f.Close()
//
// It only starts processes and sends them signals. Tests read the outcome of a run from
// the store at [Fleet.Store], from Temporal at [Fleet.Temporal] and from the sampler's
// log in [Fleet.Generations].
//
// Guarantees: All files of a fleet are in its directory, where each process has its own
// log. No process outlives the one that started it (on Linux; on other systems, Close
// ends them). The addresses of PostgreSQL and Temporal stay the same after a restart. The
// gateway and the sampler get new ones, and are found through their leases; with
// Options.Serve, those of the gateways stay the same too, because clients know them.
package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// process is the process of a role: how it is started, and its current execution.
type process struct {
	program     string
	arguments   []string
	environment []string
	directory   string
	log         string // file that it appends to
	credential  *syscall.Credential
	drain       syscall.Signal
	// up returns nil once the process works.
	up func(ctx context.Context, p *process) error

	mu      sync.Mutex
	running *running // nil before the first start
}

// running is one execution of a process.
type running struct {
	command   *exec.Cmd
	logOffset int64         // size of the log before it
	done      chan struct{} // closed when it has ended
}

// launch starts the process. It must not be running.
func (p *process) launch() error {
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own copy of the file
	info, err := log.Stat()
	if err != nil {
		return err
	}
	r := &running{command: exec.Command(p.program, p.arguments...), logOffset: info.Size(), done: make(chan struct{})}
	r.command.Env, r.command.Dir = p.environment, p.directory
	r.command.Stdout, r.command.Stderr = log, log
	r.command.SysProcAttr = attributes()
	r.command.SysProcAttr.Credential = p.credential
	if err := r.command.Start(); err != nil {
		return err
	}
	go func() {
		defer close(r.done)
		_ = r.command.Wait() // how it ended is in its state
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = r
	return nil
}

// last returns the last execution, or nil if the process was never started.
func (p *process) last() *running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// errNotRunning is for actions that need a running process.
var errNotRunning = errors.New("process is not running")

// current returns the running execution.
func (p *process) current() (*running, error) {
	r := p.last()
	if r == nil || r.ended() {
		return nil, errNotRunning
	}
	return r, nil
}

// kill ends the process without warning and returns when it is gone.
func (p *process) kill() error {
	r, err := p.current()
	if err != nil {
		return nil
	}
	err = r.command.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-r.done
	return err
}

func (r *running) signal(s syscall.Signal) error { return r.command.Process.Signal(s) }

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// code returns the exit code of an ended process, or -1 if a signal ended it.
func (r *running) code() int { return r.command.ProcessState.ExitCode() }

// logged reports whether the process has logged a text since its start.
func logged(text string) func(context.Context, *process) error {
	return func(_ context.Context, p *process) error {
		log, err := os.Open(p.log)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		if _, err := log.Seek(p.last().logOffset, io.SeekStart); err != nil {
			return err
		}
		all, err := io.ReadAll(log)
		if err != nil {
			return err
		}
		if !bytes.Contains(all, []byte(text)) {
			return fmt.Errorf("no %s in %s", text, p.log)
		}
		return nil
	}
}

// Roles returns the roles in the order in which their processes were started.
func (f *Fleet) Roles() []Role { return slices.Clone(f.order) }

// Log returns the path of the file to which a process writes its log.
func (f *Fleet) Log(role Role) string { return f.path("logs", string(role)+".log") }

// PID returns the process id of a role, or 0 if its process does not run.
func (f *Fleet) PID(role Role) int {
	p, err := f.process(role)
	if err != nil {
		return 0
	}
	running, err := p.current()
	if err != nil {
		return 0
	}
	return running.command.Process.Pid
}

// Ended returns a channel that is closed when the role's current process has ended.
func (f *Fleet) Ended(role Role) <-chan struct{} {
	if p, err := f.process(role); err == nil {
		if running, err := p.current(); err == nil {
			return running.done
		}
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Kill ends a process as kill -9 does, and returns when it is gone.
func (f *Fleet) Kill(role Role) error {
	p, err := f.process(role)
	if err != nil {
		return err
	}
	return p.kill()
}

// Hang suspends a process with SIGSTOP: it keeps its connections but answers nothing. For
// PostgreSQL this suspends only the process that accepts connections; the accepted
// connections go on.
func (f *Fleet) Hang(role Role) error { return f.signal(role, syscall.SIGSTOP) }

// Resume continues a process after Hang.
func (f *Fleet) Resume(role Role) error { return f.signal(role, syscall.SIGCONT) }

// Terminate asks a process to drain, and returns its exit code.
func (f *Fleet) Terminate(ctx context.Context, role Role) (code int, err error) {
	p, err := f.process(role)
	if err != nil {
		return -1, err
	}
	running, err := p.current()
	if err == nil {
		err = running.signal(p.drain)
	}
	if err != nil {
		return -1, fmt.Errorf("terminate %s: %w", role, err)
	}
	select {
	case <-running.done:
		return running.code(), nil
	case <-ctx.Done():
		return -1, fmt.Errorf("terminate %s: %w", role, ctx.Err())
	}
}

// Restart starts a process again, with the same command; one that still runs is
// killed before. It does not wait until it is up, except for PostgreSQL, which
// refuses to start while processes of its predecessor are still ending.
func (f *Fleet) Restart(ctx context.Context, role Role) error {
	p, err := f.process(role)
	if err != nil {
		return err
	}
	if err := p.kill(); err != nil {
		return fmt.Errorf("restart %s: %w", role, err)
	}
	if err := p.launch(); err != nil {
		return fmt.Errorf("restart %s: %w", role, err)
	}
	if role == Postgres {
		return f.Await(ctx, role)
	}
	return nil
}

// pollEvery is the time between checks whether a process is up.
const pollEvery = 20 * time.Millisecond

// Await returns when the process is up, or an error if it ends before.
func (f *Fleet) Await(ctx context.Context, role Role) error {
	p, err := f.process(role)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := p.up(ctx, p)
		if err == nil {
			return nil
		}
		if _, gone := p.current(); gone != nil {
			if role != Postgres {
				return fmt.Errorf("await %s: it has ended, see %s", role, p.log)
			}
			if err := p.launch(); err != nil {
				return fmt.Errorf("await %s: %w", role, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w (%w), see %s", role, ctx.Err(), err, p.log)
		case <-tick.C:
		}
	}
}

// closeTimeout is how long a process may drain when the fleet is closed.
const closeTimeout = 30 * time.Second

// Close drains all processes, in the reverse order of their start, and kills those that
// do not end. The files in the directory remain.
func (f *Fleet) Close() error {
	var all []error
	for _, role := range slices.Backward(f.order) {
		p := f.processes[role]
		if f.Resume(role) != nil { // one that hangs could not drain
			continue // it does not run
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		code, err := f.Terminate(ctx, role)
		cancel()
		if err == nil && code != 0 {
			err = fmt.Errorf("%s: exit code %d, see %s", role, code, p.log)
		}
		all = append(all, err, p.kill())
	}
	return errors.Join(all...)
}

func (f *Fleet) signal(role Role, s syscall.Signal) error {
	p, err := f.process(role)
	if err != nil {
		return err
	}
	running, err := p.current()
	if err == nil {
		err = running.signal(s)
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", role, err)
	}
	return nil
}

func (f *Fleet) process(role Role) (*process, error) {
	p, ok := f.processes[role]
	if !ok {
		return nil, fmt.Errorf("the fleet has no %s", role)
	}
	return p, nil
}
