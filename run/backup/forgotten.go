package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// Forgotten is the file forgotten.json of a backup's directory: what was forgotten of a
// store, before the backup and after it.
type Forgotten struct {
	Store     string             `json:"store"` // the store's id
	Forgotten []record.Forgotten `json:"forgotten"`
}

// Tombstones reads the id of the store at an address and what was forgotten of it: runs, and
// tasks and users within runs.
func Tombstones(ctx context.Context, address string) (id string, stones []record.Forgotten, err error) {
	path, err := store.FilePath(address)
	if err != nil {
		return "", nil, err
	}
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", nil, err // opening it would make one
		}
	}
	s, err := store.Open(ctx, address, nil)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Ready(ctx); err != nil {
		return "", nil, fmt.Errorf("%w: %s: %w", ErrDamaged, store.Redacted(address), err)
	}
	if id, err = s.ID(ctx); err != nil {
		return "", nil, err
	}
	stones, err = s.AllForgotten(ctx)
	for i := range stones {
		stones[i].Report = nil // it is long, and made again
	}
	return id, stones, err
}

// ReadForgotten reads a file of what was forgotten.
func ReadForgotten(path string) (f Forgotten, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%w: %s can't be read: %w", ErrDamaged, path, err)
	}
	return f, nil
}

// Note adds what was forgotten of a store to the file of a backup's directory, so that a
// later restore repeats it, also while a backup or a restore uses the directory. It refuses a
// directory without backups of the store.
func Note(directory, id string, stones []record.Forgotten) error {
	if _, err := os.Stat(filepath.Join(directory, lockFile)); err != nil {
		if isAbsent(err) {
			err = ErrNone
		}
		return err
	}
	return addForgotten(directory, id, stones)
}

// addForgotten adds tombstones to the file, which keeps those that it has. It waits for others
// who do the same, which takes them moments.
func addForgotten(directory, id string, stones []record.Forgotten) (err error) {
	lock, err := os.OpenFile(filepath.Join(directory, forgottenLock), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // which ends the lock
	if err := waitForLock(lock); err != nil {
		return err
	}
	path := filepath.Join(directory, forgottenFile)
	f, err := ReadForgotten(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f = Forgotten{Store: id, Forgotten: []record.Forgotten{}}
	case err != nil:
		return err
	case f.Store != id:
		return fmt.Errorf("%w: it has backups of another store (%s, and this one is %s)", ErrPlace, f.Store, id)
	}
	for _, one := range stones {
		one.Report = nil
		f.Forgotten = slices.DeleteFunc(f.Forgotten, func(other record.Forgotten) bool {
			return isSameRemoval(other, one)
		})
		f.Forgotten = append(f.Forgotten, one)
	}
	return writeJSON(path, f)
}

// waitForLock locks a file alone, until it is closed.
func waitForLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) { // by a signal to this process
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// ToRepeat returns what has to be forgotten again in a store that was restored: of the
// tombstones, those of runs that the store has and that were forgotten after they had been
// made. A run with the name of a forgotten one that is newer than its tombstone is another
// run. Each is returned once, even if several sources tell of it.
func ToRepeat(ctx context.Context, s *store.Store, stones []record.Forgotten) (out []record.Forgotten, err error) {
	for _, one := range stones {
		if slices.ContainsFunc(out, func(o record.Forgotten) bool { return isSameRemoval(o, one) }) {
			continue
		}
		run, err := s.RunToForget(ctx, one.Run)
		if errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrForgotten) {
			continue
		}
		if err != nil {
			return nil, err
		}
		done, err := s.Forgotten(ctx, one.Run)
		if err != nil {
			return nil, err
		}
		ended := slices.ContainsFunc(done, func(d record.Forgotten) bool {
			return isSameRemoval(d, one) && !d.Ended.IsZero()
		})
		if !ended && run.Created.Before(one.Begun) {
			out = append(out, one)
		}
	}
	return out, nil
}

func isSameRemoval(a, b record.Forgotten) bool {
	return a.Run == b.Run && a.What == b.What && a.Task == b.Task
}
