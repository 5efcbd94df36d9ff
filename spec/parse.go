package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/spec/bounds"
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

// readJSON turns a JSON file into a node.
func readJSON(data []byte) (node, error) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	r.decoder.UseNumber()
	n, err := r.value()
	if err == nil {
		if _, more := r.decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the end of the JSON value")
		}
	}
	if err == nil {
		return n, nil
	}
	var already *Faults
	if errors.As(err, &already) {
		return n, already
	}
	line := r.line()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line = lineAt(data, syntax.Offset)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the file ends in the middle of a JSON value")
	}
	return n, syntaxFault(line, "no JSON: "+err.Error())
}

type jsonReader struct {
	data    []byte
	decoder *json.Decoder
}

// line returns the line of the token that was read last.
func (r *jsonReader) line() int { return lineAt(r.data, r.decoder.InputOffset()) }

func (r *jsonReader) value() (node, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return node{}, err
	}
	n := node{line: r.line()}
	switch t := token.(type) {
	case json.Delim:
		if t == '{' {
			n.value, err = r.mapping()
		} else {
			n.value, err = r.list()
		}
	case json.Number:
		n.value = number(string(t))
	default:
		n.value = t // nil, bool or string
	}
	return n, err
}

func (r *jsonReader) mapping() ([]entry, error) {
	entries := []entry{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("a key must be text, not %v", token)
		}
		e := entry{key: key, line: r.line()}
		if e.value, err = r.value(); err != nil {
			return nil, err
		}
		for _, earlier := range entries {
			if earlier.key == key {
				return nil, twice(e, earlier)
			}
		}
		entries = append(entries, e)
	}
	_, err := r.decoder.Token() // the closing brace
	return entries, err
}

func (r *jsonReader) list() ([]node, error) {
	items := []node{}
	for r.decoder.More() {
		item, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := r.decoder.Token() // the closing bracket
	return items, err
}

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}

// readYAML turns a YAML 1.2 file with one document into a node. It resolves anchors,
// aliases and merge keys.
func readYAML(data []byte) (node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return node{line: 1}, nil
	} else if err != nil {
		return node{}, yamlFault(err, data)
	}
	if err := decoder.Decode(&second); err == nil {
		return node{}, syntaxFault(second.Line, "a second YAML document")
	} else if !errors.Is(err, io.EOF) {
		return node{}, yamlFault(err, data)
	}
	return (&yamlReader{}).value(document.Content[0])
}

// yamlFault returns the fault of a text that is not YAML, with its place. For a quotation,
// list or mapping that isn't closed, the place is the line in which it begins, because the
// parser notices the missing end only at the end of the file. A tab before the first word of
// a line is named as such, because nobody sees it.
func yamlFault(err error, data []byte) *Faults {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return syntaxFault(0, "no YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
	}
	for _, line := range []int{e.Mark.Line, e.ContextMark.Line} {
		if tabBefore(data, line) {
			return syntaxFault(line, "no YAML: the line is indented with a tab, and YAML indents with spaces alone: write spaces")
		}
	}
	message, line := "no YAML: "+e.Message, e.Mark.Line
	if e.Mark.Column > 0 {
		message += fmt.Sprintf(" (column %d)", e.Mark.Column)
	}
	if unclosed(e.ContextMsg) && e.ContextMark.Line > 0 && e.ContextMark.Line < line {
		message = fmt.Sprintf("not YAML: %s before line %d, column %d", e.Message, line, e.Mark.Column)
		line = e.ContextMark.Line
	}
	return syntaxFault(line, message)
}

// tabBefore reports whether a line, counted from 1, has a tab before its first word.
func tabBefore(data []byte, line int) bool {
	lines := bytes.Split(data, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	text := lines[line-1]
	blanks := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
	return bytes.ContainsRune(blanks, '\t') && len(bytes.TrimSpace(text)) > 0
}

// unclosed reports whether an error is about something that has to be closed: a quotation,
// list or mapping.
func unclosed(context string) bool {
	return strings.Contains(context, "flow") || strings.Contains(context, "quoted")
}

// maxAliases bounds how many aliases are followed, because aliases of aliases can expand
// to a huge document.
const maxAliases = 1000

type yamlReader struct {
	open    []*yaml.Node // the anchors whose aliases are being followed
	aliases int
}

func (r *yamlReader) value(n *yaml.Node) (node, error) {
	out := node{line: n.Line}
	if tag := n.ShortTag(); n.Style&yaml.TaggedStyle != 0 && !slices.Contains(coreTags, tag) {
		return out, syntaxFault(n.Line, fmt.Sprintf("the tag %s has no meaning in a spec: remove it", tag))
	}
	var err error
	switch n.Kind {
	case yaml.MappingNode:
		out.value, err = r.mapping(n)
	case yaml.SequenceNode:
		items := make([]node, len(n.Content))
		for i, c := range n.Content {
			if items[i], err = r.value(c); err != nil {
				break
			}
		}
		out.value = items
	case yaml.AliasNode:
		return r.alias(n)
	default:
		out.value, err = scalar(n)
	}
	return out, err
}

// The tags of YAML's core schema, as yaml.Node.ShortTag writes them.
const (
	tagNull  = "!!null"
	tagBool  = "!!bool"
	tagInt   = "!!int"
	tagFloat = "!!float"
	tagText  = "!!str"
)

// coreTags are the tags that a spec may write. "!" says that a value is what it looks like
// with quotes.
var coreTags = []string{tagNull, tagBool, tagInt, tagFloat, tagText, "!!map", "!!seq", "!"}

// scalar returns the value of a scalar by the core schema of YAML 1.2.2 (chapter 10.3.2).
// The library's own reading is not used, because it also knows YAML 1.1, in which 010 is
// eight and 1_000 a number. Unquoted text of no other kind is text, a date too.
func scalar(n *yaml.Node) (any, error) {
	tag := coreTag(n.Value)
	switch {
	case n.Style&yaml.TaggedStyle != 0:
		if tag = n.ShortTag(); tag == tagFloat && coreTag(n.Value) == tagInt {
			tag = tagInt // a field of either kind takes it
		}
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		tag = tagText
	}
	switch {
	case tag == tagText || tag == "!":
		return n.Value, nil
	case tag != coreTag(n.Value):
		return nil, syntaxFault(n.Line, fmt.Sprintf("not YAML 1.2: %q is not %s", n.Value, tag))
	case tag == tagNull:
		return nil, nil
	case tag == tagBool:
		return strings.EqualFold(n.Value, "true"), nil
	}
	return yamlNumber(n.Value), nil
}

// The forms of numbers in YAML's core schema.
var (
	yamlInt   = regexp.MustCompile(`^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$`)
	yamlFloat = regexp.MustCompile(`^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
)

// coreTag returns the tag of unquoted text.
func coreTag(text string) string {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return tagNull
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return tagBool
	}
	switch {
	case yamlInt.MatchString(text):
		return tagInt
	case yamlFloat.MatchString(text):
		return tagFloat
	}
	return tagText
}

// yamlNumber returns the number that a text of one of these forms means.
func yamlNumber(text string) any {
	for prefix, base := range map[string]int{"0o": 8, "0x": 16} {
		if digits, ok := strings.CutPrefix(text, prefix); ok {
			u, err := strconv.ParseUint(digits, base, 64)
			if err != nil {
				return outOfRange(text)
			}
			return number(strconv.FormatUint(u, 10))
		}
	}
	if !strings.ContainsAny(text, "0123456789") { // .inf or .nan
		text = strings.Replace(text, ".", "", 1)
	}
	return number(text)
}

func (r *yamlReader) mapping(n *yaml.Node) ([]entry, error) {
	entries := []entry{}
	var merged []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		value, err := r.value(n.Content[i+1])
		switch {
		case err != nil:
			return nil, err
		case key.Kind != yaml.ScalarNode:
			return nil, syntaxFault(key.Line, "a key must be text")
		case key.ShortTag() == "!!merge":
			more, err := mergeable(value)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
			continue
		}
		e := entry{key: key.Value, line: key.Line, value: value}
		if earlier := slices.IndexFunc(entries, func(o entry) bool { return o.key == e.key }); earlier >= 0 {
			return nil, twice(e, entries[earlier])
		}
		entries = append(entries, e)
	}
	for _, m := range merged { // keys of the mapping itself win, then keys that were merged first
		if !slices.ContainsFunc(entries, func(o entry) bool { return o.key == m.key }) {
			entries = append(entries, m)
		}
	}
	return entries, nil
}

// mergeable returns the entries that a merge key adds. Its value is a mapping or a list of
// mappings.
func mergeable(n node) ([]entry, error) {
	switch v := n.value.(type) {
	case []entry:
		return v, nil
	case []node:
		var all []entry
		for _, item := range v {
			more, err := mergeable(item)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		return all, nil
	}
	return nil, syntaxFault(n.line, "<< needs a mapping, not "+n.kind())
}

func (r *yamlReader) alias(n *yaml.Node) (node, error) {
	r.aliases++
	switch {
	case slices.Contains(r.open, n.Alias):
		return node{}, syntaxFault(n.Line, fmt.Sprintf("anchor &%s contains itself", n.Value))
	case r.aliases > maxAliases:
		return node{}, syntaxFault(n.Line, fmt.Sprintf("more than %d aliases", maxAliases))
	}
	r.open = append(r.open, n.Alias)
	value, err := r.value(n.Alias)
	r.open = r.open[:len(r.open)-1]
	return value, err
}

// Fault is one thing wrong with a spec.
type Fault struct {
	// Key is the path of the key, as in "training.optimizer.schedule". It is empty if the
	// fault is about the whole file.
	Key string
	// Line is the line in the file, from 1. It is 0 if the line is not known.
	Line int
	// Message says what is wrong, and Remedy what to do about it.
	Message string
	Remedy  string
	// meant is the path of the key that the user probably meant by an unknown key. It is
	// empty for all other faults.
	meant string
}

// String returns the fault on one line.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Key)
	if f.Line > 0 && f.Key != "" {
		fmt.Fprintf(&b, " (line %d)", f.Line)
	} else if f.Line > 0 {
		fmt.Fprintf(&b, "line %d", f.Line)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(f.Message)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// Faults holds everything that is wrong with a spec. It is the error of Parse, Load,
// Validate, CheckFiles and Check.
type Faults struct {
	// Name is the name of the file; empty if there is no file.
	Name string
	List []Fault
	// bounds records the bounds of the numbers that were checked, by key. Nothing is
	// recorded if it is nil.
	bounds map[string]bounds.Bounds
}

// Error returns the faults, one on each line.
func (f *Faults) Error() string {
	name := f.Name
	if name == "" {
		name = "spec"
	}
	if len(f.List) == 1 {
		return name + ": " + f.List[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d faults", name, len(f.List))
	for _, fault := range f.List {
		b.WriteString("\n  " + fault.String())
	}
	return b.String()
}

// err returns f as an error, or nil if there is no fault.
func (f *Faults) err() error {
	if len(f.List) == 0 {
		return nil
	}
	return f
}

func (f *Faults) add(key, remedy, format string, args ...any) {
	f.List = append(f.List, Fault{Key: key, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// join adds the faults in err. It leaves out those about keys that already have a fault,
// because they follow from it.
func (f *Faults) join(err error) {
	var more *Faults
	if !errors.As(err, &more) {
		return
	}
	known := slices.Clone(f.List)
	for _, fault := range more.List {
		if !slices.ContainsFunc(known, func(k Fault) bool { return related(k.Key, fault.Key) || k.meant == fault.Key }) {
			f.List = append(f.List, fault)
		}
	}
}

// related reports whether one of the keys is the other or lies above it.
func related(a, b string) bool {
	return a == b || above(a, b) || above(b, a)
}

func above(a, b string) bool {
	return strings.HasPrefix(b, a+".") || strings.HasPrefix(b, a+"[")
}
