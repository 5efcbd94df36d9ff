package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/record"
)

// wasteMark is between the name of a home and the rest of the name of a directory that
// holds it while it is removed.
const wasteMark = ".waste-"

// errHomeLost says that a later attempt at the rollout took the home over.
var errHomeLost = errors.New("a later attempt took the rollout's home")

// Home is the directory that belongs to a rollout while one of its attempts runs on this
// machine. It is empty at the start, has the same path for each attempt, and is removed
// afterwards. It has a lock, which the shim inherits. So it stays locked for as long as
// anything of the agent may still write there.
type Home struct {
	Path  string
	lock  *os.File
	owner Owner
}

// OpenHome makes the home of a rollout below scratch for an attempt. It waits for an
// earlier attempt that has the home, or takes it over (see lockHome). An empty scratch
// means a directory of the user below the system's directory for temporary files.
func OpenHome(ctx context.Context, scratch string, me Owner, rollout record.RolloutID) (*Home, error) {
	if scratch == "" {
		scratch = filepath.Join(os.TempDir(), "fulgurite-"+strconv.Itoa(os.Getuid()))
	}
	scratch, err := filepath.Abs(scratch)
	if err != nil {
		return nil, fmt.Errorf("find scratch directory: %w", err)
	}
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, fmt.Errorf("make scratch directory: %w", err)
	}
	path := filepath.Join(scratch, strings.ReplaceAll(rollout.String(), "/", "+"))
	lock, err := lockHome(ctx, path+".lock", me)
	if err != nil {
		return nil, fmt.Errorf("lock home of %s: %w", rollout, err)
	}
	h := &Home{Path: path, lock: lock, owner: me}
	err = errors.Join(h.record(0), removeAll(path), removeWaste(path))
	if err == nil {
		err = os.MkdirAll(filepath.Join(path, "tmp"), 0o700)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make home of %s: %w", rollout, err), h.Close())
	}
	return h, nil
}

// isFile reports whether the open file is the one with that name.
func isFile(f *os.File, name string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(name)
	return err == nil && os.SameFile(held, named)
}

// InUse reports whether an attempt has the home of that path, by its lock.
func InUse(path string) bool {
	f, err := os.Open(path + ".lock")
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// Record notes which shim a later attempt has to end, and then lets the shim start the
// agent. If a later attempt has already taken the home over, it returns an error, and no
// agent starts.
func (h *Home) Record(s *Shim) error {
	if err := h.record(s.cmd.Process.Pid); err != nil {
		return err
	}
	if _, err := s.lifeline.Write([]byte{0}); err != nil {
		return fmt.Errorf("have shim start agent: %w", err)
	}
	return nil
}

// record notes who owns the home. shim is a process id, 0 if there is none yet.
func (h *Home) record(shim int) error {
	h.owner.Shim = shim
	if err := h.owner.write(h.lock); err != nil {
		return fmt.Errorf("note holder of home: %w", err)
	}
	if !isFile(h.lock, h.lock.Name()) {
		return errHomeLost
	}
	return nil
}

// Close removes the home and releases it, if it has not been taken over.
//
// The home first moves into a directory for waste, so that the next attempt never sees a
// partly removed home. That move and the release come one right after the other: the
// worker may be stopped at any place, and a later attempt then takes the home over. If the
// worker were stopped during the removal, which takes time, and released the home after
// that, it would remove the lock of the later attempt.
func (h *Home) Close() error {
	waste, err := os.MkdirTemp(filepath.Dir(h.Path), filepath.Base(h.Path)+wasteMark)
	if isFile(h.lock, h.lock.Name()) {
		if err == nil {
			err = os.Rename(h.Path, filepath.Join(waste, "home"))
		} else { // the disk may be full
			err = errors.Join(err, removeAll(h.Path))
		}
		err = errors.Join(err, os.Remove(h.lock.Name()))
	}
	if waste != "" {
		err = errors.Join(err, removeAll(waste))
	}
	return errors.Join(err, h.lock.Close())
}

// removeWaste removes what attempts left that were killed in Close.
func removeWaste(home string) error {
	entries, err := os.ReadDir(filepath.Dir(home))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(home)+wasteMark) {
			err = errors.Join(err, removeAll(filepath.Join(filepath.Dir(home), e.Name())))
		}
	}
	return err
}

// removeAll removes a path. It also removes directories without write permission, such as
// those that package managers leave.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	// Directories that this can't open are reported by the second removal.
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700) // before its entries are read
		}
		return nil
	})
	return os.RemoveAll(path)
}

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
//   - If it is a later attempt of the same execution, the error is record.ErrFenced.
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
		return fmt.Errorf("%w: attempt %d holds the home", record.ErrFenced, other.Attempt)
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
