package spec

import "fmt"

// node is a value of a spec file with the line where it begins, whether the file
// is JSON or YAML.
type node struct {
	line int
	// value is nil, bool, string, int64, uint64, float64, []node or []entry.
	value any
}

// entry is a key of a mapping. Keys of one mapping differ.
type entry struct {
	key   string
	line  int
	value node
}

// kind says what n is, in a user's words.
func (n node) kind() string {
	switch n.value.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case string:
		return "text"
	case int64, uint64, float64:
		return "a number"
	case []node:
		return "a list"
	default:
		return "a mapping"
	}
}

// syntaxFault is a file that can't be read at all.
func syntaxFault(line int, message string) *Faults {
	return &Faults{List: []Fault{{Line: line, Message: message}}}
}

// twice is the fault of a key that its mapping has already.
func twice(again, first entry) *Faults {
	return syntaxFault(again.line, fmt.Sprintf("key %q stands twice, first in line %d", again.key, first.line))
}
