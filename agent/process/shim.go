package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/agent/sandbox"
)

// shimCommand is the hidden subcommand under which an executable is a shim:
// "fulgurite-shim agent-shim terms program arguments…", with the terms in JSON.
const shimCommand = "agent-shim"

// The files that a shim is started with, in addition to the agent's standard ones.
const (
	lifelineFD = 3 // gives a byte once the shim is on record; ends when the worker closes it, or dies
	reportFD   = 4 // takes the shim's reports
	lockFD     = 5 // holds the lock on the home for as long as it is open, until nothing of the agent runs
)

// sweepTime is how long a shim tries to end stragglers; only a process stuck in
// the kernel takes longer than moments.
const sweepTime = 5 * time.Second

// removalTime is how long a shim waits for podman to remove a container.
const removalTime = 30 * time.Second

// Report is a line that a shim writes. The first one has the process group once the agent
// runs, or says why it doesn't run. The second one says how it ended.
type Report struct {
	Group  int    `json:"group,omitempty"`
	Error  string `json:"error,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Code   int    `json:"code,omitempty"`   // exit code, if not ended by a signal
	Signal int    `json:"signal,omitempty"` // signal that ended it
	// Memory, Processes and CPU are what the agent took, if it was ended for taking too much
	// of that.
	Memory    int64         `json:"memory,omitempty"`
	Processes int           `json:"processes,omitempty"`
	CPU       time.Duration `json:"cpu,omitempty"`
	// Cause is why the worker no longer wanted the agent when it ended, nil if it did.
	Cause error `json:"-"`
}

// Terms say what a program may take, and whether it is isolated.
type Terms struct {
	// Memory is in bytes; 0 is no limit.
	Memory int64 `json:"memory,omitempty"`
	// Sandbox isolates the program; nil does not.
	Sandbox *sandbox.Policy `json:"sandbox,omitempty"`
}

// init makes this process a shim and doesn't return, if it was started as one: before its
// main function, and before the packages of the program that come later are prepared,
// which takes longer than what a shim does.
//
// A shim waits until it is on record (see Home.Record), so that a later attempt can end
// it. It then starts the agent in a separate process group. It ends the agent with all
// its descendants when the agent has ended or taken too much memory, or when the worker
// closes the lifeline, which also happens if the worker dies.
//
// An isolated agent is in a sandbox, whose first process takes the agent's place: it is
// what the shim starts, asks to end and waits for. That of a container is no child of the
// shim: the shim starts podman, and says how the agent ended before podman has removed the
// container.
func init() {
	if len(os.Args) < 4 || os.Args[1] != shimCommand {
		return
	}
	var terms Terms
	if err := json.Unmarshal([]byte(os.Args[2]), &terms); err != nil {
		return
	}
	os.Exit(shim(terms, os.Args[3:]))
}

func shim(terms Terms, args []string) int {
	for _, fd := range []int{lifelineFD, reportFD, lockFD} {
		syscall.CloseOnExec(fd) // the agent inherits none of them
	}
	lifeline := os.NewFile(lifelineFD, "lifeline")
	reports := json.NewEncoder(os.NewFile(reportFD, "reports"))
	if _, err := io.ReadFull(lifeline, make([]byte, 1)); err != nil {
		return 1 // the attempt has lost its home, or its worker has died
	}

	// The kernel ends the agent with the thread that started it: this one stays.
	runtime.LockOSThread()
	becomeSubreaper()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	ctx, release := context.WithCancelCause(ctx)
	defer release(nil)
	go func() {
		_, _ = io.Copy(io.Discard, lifeline)
		release(errReleased)
	}()

	agent, err := begin(ctx, terms, args)
	if err != nil {
		_ = reports.Encode(Report{Error: err.Error()})
		return 1
	}
	defer agent.close()
	group := agent.group
	_ = reports.Encode(Report{Group: group})
	preferForOOM(group)
	ended, empty := agent.reap()
	over := beyond(terms, agent.root, agent.over(empty))
	// Only the agent keeps its input and outputs open, so that their ends are noticed.
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		_ = f.Close()
	}

	var last Report
	select {
	case status := <-ended:
		last = agent.outcome(status)
	case <-ctx.Done():
		last = agent.end(ended)
	case taken := <-over:
		// There may be no memory left in which the agent could end by itself.
		agent.send(syscall.SIGKILL)
		last = agent.outcome(<-ended)
		last.Memory, last.Processes, last.CPU = taken.Memory, taken.Processes, taken.CPU
	}
	if agent.contained() { // nothing of it runs any more
		err = reports.Encode(last)
		_ = syscall.Close(lockFD) // a later attempt has the home without waiting for podman
		agent.awaitRemoval(empty)
	} else {
		agent.sweep(empty)
		err = reports.Encode(last)
	}
	if err != nil {
		return 1 // no one is left to read it
	}
	return 0
}

// errReleased is why a shim ends an agent that its worker no longer wants, or whose worker
// has died.
var errReleased = errors.New("the worker has ended it before it began")

// running is an agent that a shim has started.
type running struct {
	group int // of the agent, or of the first process of its sandbox
	// root is the process whose descendants are the agent and what it has started.
	root    int
	sandbox *sandbox.Sandbox // nil without one
}

// begin starts the agent. It gives up when ctx ends while podman still starts a container.
func begin(ctx context.Context, terms Terms, args []string) (running, error) {
	if terms.Sandbox != nil {
		s, err := sandbox.Start(ctx, *terms.Sandbox, args, os.Stdin, os.Stdout, os.Stderr)
		if errors.Is(err, sandbox.ErrUnavailable) {
			err = fmt.Errorf("agent.sandbox: %s: %w; `fulgurite doctor` says what it needs, and a new run with agent.sandbox: none isolates no agent", terms.Sandbox.Kind(), err)
		}
		if err != nil {
			return running{}, err
		}
		riseAbove()
		return running{group: s.Pid, root: s.Pid, sandbox: s}, nil
	}
	agent := exec.Command(args[0], args[1:]...)
	agent.Stdin, agent.Stdout, agent.Stderr = os.Stdin, os.Stdout, os.Stderr
	agent.SysProcAttr = ownGroup()
	if err := agent.Start(); err != nil {
		return running{}, err
	}
	return running{group: agent.Process.Pid, root: os.Getpid()}, nil
}

// outcome returns how an agent ended. The first process of a sandbox can't end by the
// signal that ended the agent, so it reports that signal. Podman has a status of its own.
func (r running) outcome(status syscall.WaitStatus) Report {
	if r.contained() {
		if signal := r.sandbox.Signal(); signal != 0 {
			return Report{Ended: true, Signal: signal}
		}
		return Report{Ended: true, Code: r.sandbox.Code()}
	}
	out := outcome(status)
	if r.sandbox != nil && out.Signal == 0 {
		if out.Signal = r.sandbox.Signal(); out.Signal != 0 {
			out.Code = 0
		}
	}
	return out
}

// over is closed when nothing of the agent runs any more: when the shim has no child left,
// or when the first process of a container has ended.
func (r running) over(empty <-chan struct{}) <-chan struct{} {
	if r.contained() {
		return r.sandbox.Over()
	}
	return empty
}

// contained reports whether the agent is in a container.
func (r running) contained() bool { return r.sandbox != nil && r.sandbox.Contained() }

// send sends a signal to the agent.
func (r running) send(s syscall.Signal) {
	if r.sandbox != nil {
		r.sandbox.Send(s)
		return
	}
	_ = syscall.Kill(-r.group, s)
}

func (r running) close() {
	if r.sandbox != nil {
		r.sandbox.Close()
	}
}

// reap waits for the agent and for the descendants that the shim adopts. The first
// channel gets the agent's status; the second is closed when no child is left.
func (r running) reap() (<-chan syscall.WaitStatus, <-chan struct{}) {
	ended, empty := make(chan syscall.WaitStatus, 1), make(chan struct{})
	if r.contained() {
		go func() {
			<-r.sandbox.Over()
			ended <- 0 // outcome needs no status
		}()
	}
	go func() {
		defer close(empty)
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, 0, nil)
			switch {
			case errors.Is(err, syscall.EINTR):
			case err != nil:
				return
			case pid == r.group && !r.contained():
				ended <- status
			}
		}
	}()
	return ended, empty
}

// end asks the agent to end and, after the grace period, ends it.
func (r running) end(ended <-chan syscall.WaitStatus) Report {
	r.send(syscall.SIGTERM)
	timer := time.NewTimer(Grace)
	defer timer.Stop()
	select {
	case status := <-ended:
		return r.outcome(status)
	case <-timer.C:
	}
	r.send(syscall.SIGKILL)
	return r.outcome(<-ended)
}

// awaitRemoval waits until podman has removed the container. It goes on with that by itself
// if it takes too long.
func (r running) awaitRemoval(empty <-chan struct{}) {
	timer := time.NewTimer(removalTime)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	}
}

// sweep ends the processes that the agent left behind.
func (r running) sweep(empty <-chan struct{}) {
	_ = syscall.Kill(-r.group, syscall.SIGKILL)
	deadline := time.Now().Add(sweepTime)
	for time.Now().Before(deadline) {
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-empty:
			timer.Stop()
			return
		case <-timer.C:
		}
		killChildren()
	}
}

func outcome(status syscall.WaitStatus) Report {
	if status.Signaled() {
		return Report{Ended: true, Signal: int(status.Signal())}
	}
	return Report{Ended: true, Code: status.ExitStatus()}
}

// readReports reads a shim's reports up to its end.
func readReports(r io.Reader) (started, last Report, err error) {
	d := json.NewDecoder(r)
	if err := d.Decode(&started); err != nil {
		return started, last, fmt.Errorf("read shim's first report: %w", err)
	}
	if started.Error != "" {
		return started, last, nil
	}
	if err := d.Decode(&last); err != nil {
		return started, last, fmt.Errorf("read shim's last report: %w", err)
	}
	return started, last, nil
}
