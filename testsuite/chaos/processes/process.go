package processes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
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
