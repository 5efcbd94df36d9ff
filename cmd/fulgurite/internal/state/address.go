package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/workers/stack"
)

// Addresses holds the addresses of a directory's stack. Their file exists in the
// directory while the stack runs.
type Addresses struct {
	PID      int    `json:"pid"`
	Temporal string `json:"temporal"`
	UI       string `json:"ui"`
	Gateway  string `json:"gateway"`
}

// AddressFile returns the path of the file with the addresses.
func (s *Flags) AddressFile() string { return filepath.Join(s.Dir, "stack.json") }

// WriteAddresses writes those of a running stack.
func (s *Flags) WriteAddresses(st *stack.Stack) error {
	return WriteJSON(s.AddressFile(), Addresses{os.Getpid(), st.TemporalAddress(), st.UIURL(), st.GatewayURL()})
}

// RemoveStaleAddresses removes the addresses of a stack that was killed. Its successor may have the
// same process id, in a container for example, and has not announced itself yet.
func (s *Flags) RemoveStaleAddresses() error {
	holder, err := s.Layout().Holder()
	if err == nil && holder == "" {
		s.RemoveAddresses()
	}
	return err
}

// RemoveAddresses removes the file of addresses.
func (s *Flags) RemoveAddresses() { _ = os.Remove(s.AddressFile()) } // stale addresses only cost a failed connection

// Addresses returns the content of the file, or zero if there is no file. A stack that
// was killed leaves its file, so running tells whether a stack still runs.
func (s *Flags) Addresses() (Addresses, error) {
	var a Addresses
	data, err := os.ReadFile(s.AddressFile())
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("%s: %w", s.AddressFile(), err)
	}
	return a, nil
}
