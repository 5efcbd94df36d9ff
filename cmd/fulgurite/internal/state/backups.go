package state

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

// backupsFile returns the path of the file that names the directories of backups: in the
// directory of state, or for the records of a fleet in their directory of blobs, which all
// machines of the fleet see.
func (s *Flags) backupsFile(r RecordFlags) string {
	if r.Store != "" {
		return filepath.Join(r.Blobs, "backups.json")
	}
	return filepath.Join(s.Dir, "backups.json")
}

// Backups returns the directories that have backups of these records, as far as they know.
func (s *Flags) Backups(r RecordFlags) (directories []string, err error) {
	data, err := os.ReadFile(s.backupsFile(r))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &directories)
	}
	if err != nil {
		return nil, fmt.Errorf("read which backups there are: %s: %w", s.backupsFile(r), err)
	}
	return directories, nil
}

// AddBackup notes a directory that has, or will have, a backup of these records. It waits for
// other processes that do the same. The note survives loss of power.
func (s *Flags) AddBackup(r RecordFlags, directory string) (err error) {
	path := s.backupsFile(r)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // which ends the lock
	for locked := false; !locked; {
		switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); {
		case err == nil:
			locked = true
		case !errors.Is(err, syscall.EINTR): // by a signal to this process
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
	}
	all, err := s.Backups(r)
	if err != nil || slices.Contains(all, directory) {
		return err
	}
	data, err := json.MarshalIndent(append(all, directory), "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return replaceDurably(path, append(data, '\n'))
}

// replaceDurably writes a file that survives loss of power and of which readers never see a part.
func replaceDurably(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".part-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
