package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// homeWait is how long an attempt waits for another one to release the home
	// by itself: the shim of a dead worker needs its grace period.
	homeWait = 2 * Grace
	// releaseTime is how long the worker of an attempt that was ended has to release
	// the home.
	releaseTime = time.Second
	homePoll    = 25 * time.Millisecond
)

// errHomeInUse says that another attempt at the rollout still runs here.
var errHomeInUse = errors.New("another attempt still holds the rollout's home")

// Owner is the attempt that has a home, as the lock file names it in JSON.
type Owner struct {
	Execution string `json:"execution"`
	Attempt   int    `json:"attempt"`
	Shim      int    `json:"shim,omitempty"` // process id
}

func (o Owner) write(lock *os.File) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt(text, 0)
	return err
}

// readOwner reads the owner from the lock file. ok is false while the file is empty or
// incomplete.
func readOwner(lock *os.File) (o Owner, ok bool) {
	text, err := io.ReadAll(io.NewSectionReader(lock, 0, 4<<10))
	return o, err == nil && json.Unmarshal(text, &o) == nil
}

// lockHome takes the exclusive lock on a home for me. If another attempt has the lock,
// the owner decides what happens:
//
//   - An earlier attempt of the same execution was fenced by the store, and its worker
//     may be stopped forever. Its shim is asked to end it at once, which takes at most
//     the agent's grace period. If the lock isn't free releaseTime after that, or after
//     homeWait if there is no shim, the home is taken over all the same.
//   - If it is a later attempt of the same execution, the error is trace.ErrFenced.
//   - Any other owner, such as another run of the same name, has homeWait to release the
//     home. After that the error is errHomeInUse.
func lockHome(ctx context.Context, name string, me Owner) (*os.File, error) {
	w := homeWaiter{me: me, deadline: time.Now().Add(homeWait)}
	for {
		f, free, err := tryLock(name)
		if err != nil || free {
			return f, err
		}
		err = w.act(f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		if !wait.For(ctx, homePoll) {
			return nil, context.Cause(ctx)
		}
	}
}

// homeWaiter is an attempt that waits for a home.
type homeWaiter struct {
	me        Owner
	deadline  time.Time
	signalled int  // the shim that was asked to end its agent
	ended     bool // and did
}

// act deals with the present owner of the lock.
func (w *homeWaiter) act(lock *os.File) error {
	other, known := readOwner(lock)
	late := time.Now().After(w.deadline)
	switch {
	case !known || other.Execution != w.me.Execution || other.Attempt == w.me.Attempt:
		if late {
			return errHomeInUse
		}
		return nil
	case other.Attempt > w.me.Attempt:
		return fmt.Errorf("%w: attempt %d holds the home", trace.ErrFenced, other.Attempt)
	case late:
		return takeOver(lock, other)
	}
	if other.Shim != 0 && other.Shim != w.signalled && signalShim(other.Shim, lock, syscall.SIGTERM) {
		w.signalled, w.ended, w.deadline = other.Shim, false, time.Now().Add(shimEnd)
	}
	if w.signalled != 0 && !w.ended && !signalShim(w.signalled, lock, 0) {
		w.ended, w.deadline = true, time.Now().Add(releaseTime)
	}
	return nil
}

// tryLock opens the file and takes the exclusive lock on it, if that is free. The owner
// may remove the file at any time, so the lock counts only if the file still has its
// name.
func tryLock(name string) (f *os.File, free bool, err error) {
	f, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && isFile(f, name) {
		return f, true, nil
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	}
	if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, false, nil
}

// takeOver removes the lock file of an owner whose worker doesn't react. A shim that is
// still alive is killed, and the agent with it.
func takeOver(lock *os.File, o Owner) error {
	if o.Shim != 0 && signalShim(o.Shim, lock, syscall.SIGKILL) && !identifiesShims {
		return errHomeInUse
	}
	if !isFile(lock, lock.Name()) {
		return nil // it was released after all
	}
	return os.Remove(lock.Name())
}
