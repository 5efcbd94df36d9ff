package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// AddBackup notes a directory that has a backup of these records.
func (s *Flags) AddBackup(r RecordFlags, directory string) error {
	all, err := s.Backups(r)
	if err != nil || slices.Contains(all, directory) {
		return err
	}
	return WriteJSON(s.backupsFile(r), append(all, directory))
}
