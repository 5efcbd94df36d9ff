package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

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
