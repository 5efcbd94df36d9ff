package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrNotStarted is wrapped when the program could not be started: on this machine, it
// does not exist or isn't executable.
var ErrNotStarted = errors.New("agent not started")

// Grace is the time between asking a program to end and killing it.
const Grace = 2 * time.Second

// shimEnd is how long a shim may take to end an agent before it is itself ended.
const shimEnd = Grace + sweepTime + 3*time.Second

// Shim is a running shim.
type Shim struct {
	cmd      *exec.Cmd
	lifeline *os.File // its write end
	reports  *os.File // its read end
}

// Start starts a shim for a program and its arguments. prepare fills in the rest of the
// command. The program begins when Home.Record has put the shim on record.
func Start(args []string, terms Terms, home *Home, prepare func(*exec.Cmd)) (*Shim, error) {
	text, err := json.Marshal(terms)
	if err != nil {
		return nil, fmt.Errorf("encode terms of a program: %w", err)
	}
	program, err := executable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	lifelineIn, lifeline, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make lifeline: %w", err)
	}
	reports, reportsOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make report pipe: %w", err), lifelineIn.Close(), lifeline.Close())
	}
	cmd := exec.Command(program)
	cmd.Args = append([]string{"fulgurite-shim", shimCommand, string(text)}, args...)
	cmd.ExtraFiles = []*os.File{lifelineIn, reportsOut, home.lock}
	// In its own session, the terminal's signals to the worker do not reach the shim.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// An output that something still holds open delays the end no longer than this.
	cmd.WaitDelay = Grace
	prepare(cmd)
	err = cmd.Start()
	err = errors.Join(err, lifelineIn.Close(), reportsOut.Close())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start shim: %w", err), lifeline.Close(), reports.Close())
	}
	return &Shim{cmd: cmd, lifeline: lifeline, reports: reports}, nil
}

// Wait waits for the program and returns how it ended. When ctx ends, it closes the
// lifeline. It is an error if the shim couldn't start it or died. The cause in the report
// is that of ctx when the program had ended, since removing a container takes longer.
func (s *Shim) Wait(ctx context.Context) (Report, error) {
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(ctx, ended)
	}()
	started, last, err := readReports(s.reports)
	last.Cause = context.Cause(ctx) // what ends it later does not matter
	if err != nil && started.Group > 0 {
		// The shim died, and the agent with it, but not the agent's own children.
		_ = syscall.Kill(-started.Group, syscall.SIGKILL)
	}
	// The shim's exit code says nothing that the reports don't. An output that an escaped
	// process holds open has been cut off.
	_ = s.cmd.Wait()
	close(ended)
	<-watched
	_ = s.lifeline.Close() // closed already if ctx ended
	_ = s.reports.Close()
	if started.Error != "" {
		return last, fmt.Errorf("%w: %s", ErrNotStarted, started.Error)
	}
	return last, err
}

// watch closes the lifeline when ctx ends, and kills a shim that doesn't end
// in time after that.
func (s *Shim) watch(ctx context.Context, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_ = s.lifeline.Close()
	timer := time.NewTimer(shimEnd)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		_ = s.cmd.Process.Kill()
	}
}

// Meter counts the bytes that a program writes to both its outputs.
type Meter struct {
	limit      int64
	began      time.Time
	written    atomic.Int64
	last       atomic.Int64 // when it wrote last, in nanoseconds after began
	once       sync.Once
	onProgress func()
	onExceeded func()
}

// NewMeter starts a meter. progress is called at each write, exceeded once when more than
// limit bytes were written; a limit of 0 is no limit.
func NewMeter(limit int64, progress, exceeded func()) *Meter {
	return &Meter{limit: limit, began: time.Now(), onProgress: progress, onExceeded: exceeded}
}

// Write counts p.
func (m *Meter) Write(p []byte) (int, error) {
	m.onProgress()
	m.last.Store(int64(time.Since(m.began)))
	m.written.Add(int64(len(p)))
	if m.Exceeded() {
		m.once.Do(m.onExceeded)
	}
	return len(p), nil
}

// Exceeded reports whether more than the limit was written.
func (m *Meter) Exceeded() bool { return m.limit > 0 && m.written.Load() > m.limit }

// Quiet returns how long nothing has been written.
func (m *Meter) Quiet() time.Duration { return time.Since(m.began) - time.Duration(m.last.Load()) }
