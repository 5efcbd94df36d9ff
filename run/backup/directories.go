package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Directories returns the directories of backups that a file names, none if there is no such
// file.
func Directories(path string) (out []string, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("read which backups there are: %s: %w", path, err)
	}
	return out, nil
}

// AddDirectories adds directories to those that a file names. It makes the file if it is absent,
// and waits for other processes that do the same. What it adds survives loss of power.
func AddDirectories(path string, directories ...string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	lock, err := lockAlone(path + ".lock")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	known, err := Directories(path)
	if err != nil {
		return err
	}
	all := union(known, directories)
	if len(all) == len(known) {
		return nil
	}
	return writeJSON(path, all)
}

// union returns a and what only b has.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, one := range b {
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return out
}

// lockAlone locks a file, which is made if it is absent, until the returned file is closed. It
// waits for other processes.
func lockAlone(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EINTR) { // by a signal to this process
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
	}
}
