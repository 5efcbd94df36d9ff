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

	"github.com/fulgurite/fulgurite/trace"
)

// errHomeLost says that a later attempt at the rollout took the home over.
var errHomeLost = errors.New("a later attempt took the rollout's home")

// home is the directory that belongs to a rollout while one of its attempts
// runs on this machine: empty at the start, the same path for each attempt,
// gone afterwards. It is held by a lock, which the shim inherits, so that it
// stays held for as long as anything of the agent may still write there.
type home struct {
	path   string
	lock   *os.File
	holder holder
}

// openHome makes the home of a rollout below scratch for an attempt, which is
// waited for or taken over from an earlier one (see lockHome).
func openHome(ctx context.Context, scratch string, me holder, rollout trace.RolloutID) (*home, error) {
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
	h := &home{path: path, lock: lock, holder: me}
	err = errors.Join(h.note(0), removeAll(path), removeAll(h.waste()))
	if err == nil {
		err = os.MkdirAll(filepath.Join(path, "tmp"), 0o700)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make home of %s: %w", rollout, err), h.close())
	}
	return h, nil
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

// note writes down who holds the home, for whoever waits for it: shim is the
// process to end, 0 if there is none yet. It is errHomeLost if the wait was over.
func (h *home) note(shim int) error {
	h.holder.Shim = shim
	if err := h.holder.write(h.lock); err != nil {
		return fmt.Errorf("note holder of home: %w", err)
	}
	if !isFile(h.lock, h.lock.Name()) {
		return errHomeLost
	}
	return nil
}

// waste is where a home goes before it is removed: what is removed entry by entry
// must not be the home of the next attempt.
func (h *home) waste() string { return h.path + ".waste" }

// close removes the home and lets go of it, if it has not been taken over.
func (h *home) close() error {
	if !isFile(h.lock, h.lock.Name()) {
		return h.lock.Close()
	}
	err := os.Rename(h.path, h.waste())
	if err == nil {
		err = removeAll(h.waste())
	}
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
