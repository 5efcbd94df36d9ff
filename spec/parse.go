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

	"github.com/fulgurite/fulgurite/internal/textfile"
)

// Parse reads the spec in data, which is JSON if name ends in ".json" and YAML otherwise.
// It fills in no defaults and looks for no files. It reports, as *Faults with lines, every
// unknown key, every value of the wrong kind, and every zero that would silently become a
// default. If there are any such faults, it also reports the faults that Validate finds in
// the rest.
func Parse(data []byte, name string) (Spec, error) {
	s, err := parse(data, name)
	if err != nil {
		return Spec{}, err
	}
	return s, nil
}

// parse does the work of Parse, and returns the readable parts of a faulty spec too.
func parse(data []byte, name string) (Spec, error) {
	read := readYAML
	if strings.EqualFold(filepath.Ext(name), ".json") {
		read = readJSON
	}
	var root node
	data, err := decode(data, name)
	if err == nil {
		root, err = read(data)
	}
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

// decode returns the text of a file. YAML may also be in UTF-16, which its byte order mark
// says, and the YAML library reads that by itself.
func decode(data []byte, name string) ([]byte, error) {
	wide := bytes.HasPrefix(data, []byte("\xff\xfe")) && !bytes.HasPrefix(data, []byte("\xff\xfe\x00\x00")) || bytes.HasPrefix(data, []byte("\xfe\xff"))
	if wide && !strings.EqualFold(filepath.Ext(name), ".json") {
		return data, nil
	}
	text, err := textfile.Decode(data)
	var encoding *textfile.NotUTF8
	switch {
	case errors.As(err, &encoding):
		return nil, syntaxFault(encoding.Line, "not UTF-8: "+textfile.Encoding)
	case err != nil:
		return nil, syntaxFault(0, err.Error())
	}
	return text, nil
}

// Load reads the spec file at path and resolves its relative paths against the file's
// directory. If Parse finds faults, Load also reports missing files.
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

// LoadText does the same as Load for a text that is not in a file. It resolves relative
// paths against directory, and errors name the text name.
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

// Stored reads the spec in a run's row of the store and completes it. PrepareRun wrote it
// with all defaults of its release, so only keys that a later release added are absent.
func Stored(raw json.RawMessage) (Spec, error) {
	var s Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, err
	}
	return s.WithDefaults(), nil
}
