package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ownerFile has the id of the store whose blobs a directory keeps.
const ownerFile = "store"

// Owner returns the id of the store whose blobs this directory keeps, "" if none has
// claimed it.
func (s *Store) Owner() (string, error) {
	text, err := os.ReadFile(filepath.Join(s.directory, ownerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read whose blobs these are: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Claim writes the id of a store into a directory that nobody has claimed. It returns
// fs.ErrExist if somebody has, at the same time perhaps.
func (s *Store) Claim(id string) (err error) {
	f, err := os.CreateTemp(s.directory, temporary+"*")
	if err != nil {
		return fmt.Errorf("claim blobs: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(id + "\n")
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("claim blobs: %w", err)
	}
	if err := os.Link(f.Name(), filepath.Join(s.directory, ownerFile)); err != nil {
		return fmt.Errorf("claim blobs: %w", err)
	}
	return syncDirectory(s.directory)
}

// Empty reports whether the directory has no content.
func (s *Store) Empty() (bool, error) {
	entries, err := os.ReadDir(s.directory)
	if err != nil {
		return false, fmt.Errorf("look for blobs: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && len(e.Name()) == 2 {
			return false, nil
		}
	}
	return true, nil
}

// Directory returns the absolute path of the directory.
func (s *Store) Directory() string { return s.directory }
