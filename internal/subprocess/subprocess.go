// Package subprocess runs commands that answer a question: graders, programs of tasks,
// reflectors. A command has a process group of its own, so that what it started ends with
// it, and what it writes is kept within bounds.
//
// It is not for agents: package agent/process runs those, and lets nothing of them survive
// their worker. A command of this package that does not end by itself survives a worker
// that is killed.
package subprocess

import (
	"errors"
	"os/exec"
	"time"
)

// grace is how long the children of a command that has ended or was killed may keep its
// output open.
const grace = time.Second

// OwnGroup makes the command start in its own process group. When the command's context
// ends, the whole group is killed. On systems without process groups, only the command
// is.
func OwnGroup(command *exec.Cmd) {
	command.WaitDelay = grace
	ownGroup(command)
}

// Run runs a command to its end and then kills what it left running. It is no error if a
// process that the command started keeps its output open. started is false if there was
// no process at all.
func Run(command *exec.Cmd) (started bool, err error) {
	if err := command.Start(); err != nil {
		return false, err
	}
	err = command.Wait()
	KillGroup(command)
	if errors.Is(err, exec.ErrWaitDelay) {
		return true, nil
	}
	return true, err
}

// Tail is a writer that remembers the end of its text. It must not be used by two
// goroutines at once.
type Tail struct {
	size    int
	kept    []byte
	written int64
}

// NewTail returns a Tail that remembers the given number of bytes.
func NewTail(size int) *Tail { return &Tail{size: size} }

// Write is part of io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.written += int64(len(p))
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*t.size {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-t.size:]...)
	}
	return len(p), nil
}

// Cut reports whether the beginning of the text is gone.
func (t *Tail) Cut() bool { return t.written > int64(t.size) }

// String returns the end of the text.
func (t *Tail) String() string { return string(t.kept[max(0, len(t.kept)-t.size):]) }
