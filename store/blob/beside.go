package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var besideForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// Beside returns the path of a file that is derived from the content of digest and can be
// made again. The path is empty if digest or name is invalid. name has only letters,
// digits, '-' and '.'. Such files are removed with the content by Remove, or by Open if
// their content is gone.
func (s *Store) Beside(digest, name string) string {
	if !digestForm.MatchString(digest) || !besideForm.MatchString(name) {
		return ""
	}
	return s.path(digest) + "." + name
}

// sweepBeside removes files next to contents that are gone: such a file was made while
// its content was removed.
func sweepBeside(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return fmt.Errorf("look for remains: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || len(e.Name()) != 2 {
			continue
		}
		in := filepath.Join(directory, e.Name())
		err := removeBeside(in, func(content string) bool {
			_, err := os.Stat(filepath.Join(in, content))
			return errors.Is(err, fs.ErrNotExist)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeBeside removes the files in a directory that belong to contents for which gone
// returns true.
func removeBeside(directory string, gone func(content string) bool) error {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for files beside contents: %w", err)
	}
	for _, e := range entries {
		content, _, beside := strings.Cut(e.Name(), ".")
		if !beside || !digestForm.MatchString(prefix+content) || !gone(content) {
			continue
		}
		if err := os.Remove(filepath.Join(directory, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", e.Name(), err)
		}
	}
	return nil
}
