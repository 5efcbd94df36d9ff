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

// backupsFile returns the path of the file that names the directories of backups.
func (s *Flags) backupsFile() string { return filepath.Join(s.Dir, "backups.json") }

// Backups returns the directories that have backups of this one, as far as it knows.
func (s *Flags) Backups() (directories []string, err error) {
	data, err := os.ReadFile(s.backupsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &directories)
	}
	if err != nil {
		return nil, fmt.Errorf("read which backups there are: %s: %w", s.backupsFile(), err)
	}
	return directories, nil
}

// AddBackup notes a directory that has a backup of this one.
func (s *Flags) AddBackup(directory string) error {
	all, err := s.Backups()
	if err != nil || slices.Contains(all, directory) {
		return err
	}
	return WriteJSON(s.backupsFile(), append(all, directory))
}
