package processes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

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
