package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

const (
	// homeWait is how long a new attempt waits for the one before it to let go
	// of the home: the shim of a dead worker needs its grace period.
	homeWait = 2 * grace
	homePoll = 25 * time.Millisecond
)

// errHomeInUse says that an earlier attempt at the rollout still runs here.
var errHomeInUse = errors.New("an earlier attempt still holds the rollout's home")

// home is the directory that belongs to a rollout while one of its attempts
// runs on this machine: empty at the start, the same path for each attempt,
// gone afterwards. It is held by a lock, which the shim inherits, so that it
// stays held for as long as anything of the agent may still write there.
type home struct {
	path string
	lock *os.File
}

// openHome makes the home of a rollout below scratch.
func openHome(ctx context.Context, scratch string, rollout trace.RolloutID) (*home, error) {
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
	lock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return nil, fmt.Errorf("lock home of %s: %w", rollout, err)
	}
	h := &home{path: path, lock: lock}
	err = removeAll(path)
	if err == nil {
		err = os.MkdirAll(filepath.Join(path, "tmp"), 0o700)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make home of %s: %w", rollout, err), h.close())
	}
	return h, nil
}

// lockFile takes the exclusive lock on a file, which may be removed by its
// holder at any time: then the lock is on nothing, and the next file is tried.
func lockFile(ctx context.Context, name string) (*os.File, error) {
	deadline := time.Now().Add(homeWait)
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isFile(f, name) {
			return f, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, errHomeInUse
		}
		timer := time.NewTimer(homePoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// isFile reports whether the open file is the one of that name.
func isFile(f *os.File, name string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(name)
	return err == nil && os.SameFile(held, named)
}

// close removes the home and lets go of it.
func (h *home) close() error {
	err := removeAll(h.path)
	return errors.Join(err, os.Remove(h.lock.Name()), h.lock.Close())
}

// removeAll also removes directories without write permission, such as those
// that package managers leave.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	// What this can't open, the second removal reports.
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700) // before its entries are read
		}
		return nil
	})
	return os.RemoveAll(path)
}
