package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// Parse reads the spec in data, which is JSON if name ends in ".json" and YAML
// otherwise. It fills in no defaults and looks for no files. Every unknown key,
// value of the wrong kind, and zero where zero would become a default is
// reported, with its line, as *Faults; if there are any, what Validate finds in
// the rest comes with them.
func Parse(data []byte, name string) (Spec, error) {
	s, err := parse(data, name)
	if err != nil {
		return Spec{}, err
	}
	return s, nil
}

// parse also returns the readable parts of a faulty spec.
func parse(data []byte, name string) (Spec, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	read := readYAML
	if strings.EqualFold(filepath.Ext(name), ".json") {
		read = readJSON
	}
	root, err := read(data)
	if err != nil {
		var faults *Faults
		if errors.As(err, &faults) {
			faults.Name = name
			return Spec{}, faults
		}
		return Spec{}, fmt.Errorf("parse %s: %w", name, err)
	}
	var s Spec
	if root.value == nil {
		return s, &Faults{Name: name, List: []Fault{{Message: "empty", Remedy: "see docs/spec.md"}}}
	}
	b := &binder{faults: Faults{Name: name}}
	b.bind(reflect.ValueOf(&s).Elem(), root, "")
	if len(b.faults.List) == 0 {
		return s, nil
	}
	if _, mapping := root.value.([]entry); mapping {
		b.faults.join(s.Validate())
	}
	return s, &b.faults
}

// Load reads the spec file at path and resolves its relative paths against the file's
// directory. If Parse finds faults, Load reports missing files with them.
func Load(path string) (Spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("read spec: %w", err)
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return Spec{}, fmt.Errorf("locate spec %s: %w", path, err)
	}
	return LoadText(data, path, filepath.Dir(absolute))
}

// LoadText is Load for a text that does not come from a file: its relative paths are
// resolved against directory, and errors call it name.
func LoadText(data []byte, name, directory string) (Spec, error) {
	s, err := parse(data, name)
	s = s.Resolve(directory)
	if err != nil {
		var faults *Faults
		if errors.As(err, &faults) {
			faults.join(s.CheckFiles())
		}
		return Spec{}, err
	}
	return s, nil
}

// Stored reads the spec that a run's row holds. PrepareRun wrote it with all defaults
// of its release; keys that a later release added are absent.
func Stored(raw json.RawMessage) (Spec, error) {
	var s Spec
	err := json.Unmarshal(raw, &s)
	return s, err
}
