// Package state manages the directory that holds everything durable: the flags that
// choose it, the addresses of the stack that runs on it, the connection to its Temporal
// server, its records, and its free disk space.
package state

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// Flags are the flags that every command has.
type Flags struct {
	Dir     string `help:"Directory of all state." default:".fulgurite" env:"FULGURITE_DIR" type:"path"`
	Verbose bool   `help:"Log what the parts do to standard error." short:"v"`

	records RecordFlags // of the command that runs
}

// Layout returns the layout of the directory.
func (s *Flags) Layout() stack.Layout { return stack.Layout(s.Dir) }

// UseRecords says which records the command that runs was told to use, so that the commands
// that it shows use them too.
func (s *Flags) UseRecords(r RecordFlags) { s.records = r }

// Place returns where the commands that are shown have to look. What they find by
// themselves, in the working directory and in the environment, is left out.
func (s *Flags) Place() shell.Place {
	p := shell.Place{Dir: s.Dir}
	if usual, err := filepath.Abs(".fulgurite"); err == nil && s.Dir == usual {
		p.Dir = ""
	}
	if r := s.records; r.Store != "" && r.Store != os.Getenv("FULGURITE_STORE") { // some commands take none
		p.Store = r.Store
		path, err := store.FilePath(r.Store)
		absolute, wrong := filepath.Abs(path)
		switch {
		case store.Redacted(r.Store) != r.Store:
			p.Store = "URL" // a password is not shown
		case err == nil && wrong == nil && path != "":
			p.Store = absolute
		}
	}
	if usual, err := filepath.Abs(os.Getenv("FULGURITE_BLOBS")); os.Getenv("FULGURITE_BLOBS") == "" || err != nil || usual != s.records.Blobs {
		p.Blobs = s.records.Blobs
	}
	return p
}

// Command returns a command that looks where this one does, as people type it.
func (s *Flags) Command(words ...string) string { return s.Place().Command(words...) }

// WorkerCommand returns a command of a fleet's processes that works on the records that this
// one was told to use, as people type it. It needs to be told of records: if neither a flag
// nor the environment names them, it has words in their place.
func (s *Flags) WorkerCommand(name string) string {
	p := s.Place()
	if p.Store == "" && os.Getenv("FULGURITE_STORE") == "" {
		p.Store = "URL"
	}
	if p.Blobs == "" && os.Getenv("FULGURITE_BLOBS") == "" {
		p.Blobs = "DIR"
	}
	return p.WorkerCommand(name)
}

// WriteJSON writes v to a file that is whole or absent.
func WriteJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return ReplaceFile(path, append(data, '\n'))
}

// ReplaceFile writes a file, and makes its directory if there is none. A reader never
// sees a part of the file.
func ReplaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// Person returns the user who runs this process, as user@host. A user without a name is
// given by the user id.
func Person() string {
	name, host := strconv.Itoa(os.Getuid()), "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

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
