package state

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// TorchDir returns the directory of the Python environment of engine torch. It exists
// only if `fulgurite doctor --install-torch` has made it.
func (s *Flags) TorchDir() string { return filepath.Join(s.Dir, "torch") }

// UseTorch makes engines of this process use the directory's own Python environment, if
// there is one and the environment variable names no other.
func (s *Flags) UseTorch() error {
	python := filepath.Join(s.TorchDir(), "bin", "python")
	if os.Getenv(torch.EnvPython) != "" {
		return nil
	}
	if _, err := os.Stat(python); err != nil {
		return nil // it does not exist or can't be run
	}
	if err := os.Setenv(torch.EnvPython, python); err != nil {
		return fmt.Errorf("name the Python of engine torch: %w", err)
	}
	return nil
}
