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

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// Forgotten is the file forgotten.json of a backup's directory: what was forgotten of a
// store, before the backup and after it.
type Forgotten struct {
	Store     string             `json:"store"` // the store's id
	Forgotten []record.Forgotten `json:"forgotten"`
	// Backups are the directories of all backups of the store that were known. A restored store
	// has to know them, too: what is forgotten of it is also in them.
	Backups []string `json:"backups,omitempty"`
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

// Note adds what was forgotten of a store, and which backups there are, to the file of a backup's
// directory, so that a later restore repeats it, also while a backup or a restore uses the
// directory. It refuses a directory without backups of the store.
func Note(directory string, more Forgotten) error {
	if _, err := os.Stat(filepath.Join(directory, lockFile)); err != nil {
		if isAbsent(err) {
			err = ErrNone
		}
		return err
	}
	return addForgotten(directory, more)
}

// addForgotten adds to the file, which keeps what it has. It waits for others who do the same,
// which takes them moments.
func addForgotten(directory string, more Forgotten) (err error) {
	lock, err := lockAlone(filepath.Join(directory, forgottenLock))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	path := filepath.Join(directory, forgottenFile)
	f, err := ReadForgotten(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f = Forgotten{Store: more.Store, Forgotten: []record.Forgotten{}}
	case err != nil:
		return err
	case f.Store != more.Store:
		return fmt.Errorf("%w: it has backups of another store (%s, and this one is %s)", ErrPlace, f.Store, more.Store)
	}
	f.Backups = union(f.Backups, more.Backups)
	for _, one := range more.Forgotten {
		one.Report = nil
		f.Forgotten = slices.DeleteFunc(f.Forgotten, func(other record.Forgotten) bool {
			return isSameRemoval(other, one)
		})
		f.Forgotten = append(f.Forgotten, one)
	}
	return writeJSON(path, f)
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
