package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
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
		return node{}, yamlFault(err)
	}
	if err := decoder.Decode(&second); err == nil {
		return node{}, syntaxFault(second.Line, "a second YAML document")
	} else if !errors.Is(err, io.EOF) {
		return node{}, yamlFault(err)
	}
	return (&yamlReader{}).value(document.Content[0])
}

// yamlFault returns the fault of a text that is not YAML, with its place. For a quotation,
// list or mapping that isn't closed, the place is the line in which it begins, because the
// parser notices the missing end only at the end of the file.
func yamlFault(err error) *Faults {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return syntaxFault(0, "no YAML: "+strings.TrimPrefix(err.Error(), "yaml: "))
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

// scalar returns the value of unquoted or tagged text. A date stays text.
func scalar(n *yaml.Node) (any, error) {
	var value any = n.Value
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool", "!!int", "!!float":
		if err := n.Decode(&value); err != nil {
			return nil, syntaxFault(n.Line, fmt.Sprintf("not YAML: %q is not %s", n.Value, n.ShortTag()))
		}
	}
	if i, ok := value.(int); ok {
		return int64(i), nil
	}
	return value, nil
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
