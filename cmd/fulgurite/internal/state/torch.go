package state

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/model/torch"
)

// TorchDir is where the Python environment of engine torch lies that `fulgurite doctor
// --install-torch` made, if it did.
func (s *Flags) TorchDir() string { return filepath.Join(s.Dir, "torch") }

// UseTorch has engines of this process take the directory's own Python environment, if
// there is one and the person has named no other.
func (s *Flags) UseTorch() error {
	python := filepath.Join(s.TorchDir(), "bin", "python")
	if os.Getenv(torch.EnvPython) != "" {
		return nil
	}
	if _, err := os.Stat(python); err != nil {
		return nil // there is none, or nobody may use it
	}
	if err := os.Setenv(torch.EnvPython, python); err != nil {
		return fmt.Errorf("name the Python of engine torch: %w", err)
	}
	return nil
}
