package schema

import (
	"encoding/binary"
	"slices"
)

type kind uint8

const (
	empty    kind = iota // the empty text
	bytesIn              // one byte of a set
	literal              // some bytes
	special              // one special token
	sequence             // a, then b
	choice               // one of the options
	repeat               // a, from min to max times
	value                // a JSON value by a rule, below depth open brackets
	scalar               // a, whose masks are worth keeping apart from what follows
	except               // a, whose texts are unbounded, without some texts
	both                 // the texts of a that are also texts of b
	other                // the texts that are not texts of a; a may be nil
	unclosed             // the texts of a in which no "</" occurs
)

// unbounded is the max of a repeat without end.
const unbounded = -1

// node is a set of texts, written as an expression. The state of a matcher is the set of
// texts with which it may continue. Equal expressions are one node as long as the
// automaton keeps its tables. The empty set has no node; it is nil. So from every node
// some text leads to an end.
type node struct {
	id       uint32
	kind     kind
	nullable bool // the empty text is in the set
	a, b     *node
	// min and max are those of a repeat, or the rule and depth of a value. min is the token
	// of a special, and 0 for an unclosed after "<".
	min, max int
	text     string
	set      ByteSet
	options  []*node
	without  []string // of an except, sorted

	// row[b] is the node to which byte b leads. It is nil until it is computed.
	row        *[256]*node
	generation uint32
	alike      *likeness
	exact      *likeness

	// visited is true for a both once it is known whether a text leads to its end: live.
	visited, live bool
}

// identity is the key of a node; nodes with the same key are one.
type identity struct {
	kind     kind
	a, b     uint32
	min, max int
	text     string
}

// intern returns the node of an identity. If there is none, create makes it.
func (a *automaton) intern(i identity, create func() *node) *node {
	if n, known := a.nodes[i]; known {
		return n
	}
	n := create()
	a.lastID++
	n.id, n.kind = a.lastID, i.kind
	a.nodes[i] = n
	return n
}

func (a *automaton) empty() *node {
	return a.intern(identity{kind: empty}, func() *node { return &node{nullable: true} })
}

func (a *automaton) in(set ByteSet) *node {
	if set == (ByteSet{}) {
		return nil
	}
	var text []byte
	for _, word := range set {
		text = binary.LittleEndian.AppendUint64(text, word)
	}
	return a.intern(identity{kind: bytesIn, text: string(text)}, func() *node { return &node{set: set} })
}

func (a *automaton) literal(text string) *node {
	if text == "" {
		return a.empty()
	}
	return a.intern(identity{kind: literal, text: text}, func() *node { return &node{text: text} })
}

func (a *automaton) special(token int32) *node {
	return a.intern(identity{kind: special, min: int(token)}, func() *node { return &node{min: int(token)} })
}

func (a *automaton) value(rule, depth int) *node {
	return a.intern(identity{kind: value, min: rule, max: depth}, func() *node { return &node{min: rule, max: depth} })
}

func (a *automaton) scalar(n *node) *node {
	if n == nil || n.kind == empty || n.kind == scalar {
		return n
	}
	return a.intern(identity{kind: scalar, a: n.id}, func() *node { return &node{a: n, nullable: n.nullable} })
}

func (a *automaton) except(n *node, without []string) *node {
	if len(without) == 0 {
		return n
	}
	var text []byte
	for _, one := range without {
		text = append(binary.AppendUvarint(text, uint64(len(one))), one...)
	}
	return a.intern(identity{kind: except, a: n.id, text: string(text)}, func() *node {
		return &node{a: n, without: without, text: string(text), nullable: n.nullable && without[0] != ""}
	})
}

// sequence nests to the right, so that few steps lead to the first part of a state,
// however deep the brackets are.
func (a *automaton) sequence(parts ...*node) *node {
	all := a.empty()
	for _, part := range slices.Backward(parts) {
		all = a.pair(part, all)
	}
	return all
}

func (a *automaton) pair(head, rest *node) *node {
	switch {
	case head == nil || rest == nil:
		return nil
	case head.kind == empty:
		return rest
	case rest.kind == empty:
		return head
	case head.kind == sequence:
		return a.pair(head.a, a.pair(head.b, rest))
	}
	return a.intern(identity{kind: sequence, a: head.id, b: rest.id}, func() *node {
		return &node{a: head, b: rest, nullable: head.nullable && rest.nullable}
	})
}

func (a *automaton) choice(options ...*node) *node {
	var flat []*node
	for _, option := range options {
		switch {
		case option == nil:
		case option.kind == choice:
			flat = append(flat, option.options...)
		default:
			flat = append(flat, option)
		}
	}
	slices.SortFunc(flat, func(x, y *node) int { return int(x.id) - int(y.id) })
	flat = slices.Compact(flat)
	switch len(flat) {
	case 0:
		return nil
	case 1:
		return flat[0]
	}
	text := make([]byte, 0, 4*len(flat))
	for _, option := range flat {
		text = binary.LittleEndian.AppendUint32(text, option.id)
	}
	return a.intern(identity{kind: choice, text: string(text)}, func() *node {
		return &node{options: flat, nullable: slices.ContainsFunc(flat, func(n *node) bool { return n.nullable })}
	})
}

func (a *automaton) optional(n *node) *node { return a.choice(n, a.empty()) }

func (a *automaton) repeat(n *node, least, most int) *node {
	if most != unbounded && least > most {
		return nil
	}
	if n == nil || n.kind == empty || most == 0 {
		if n == nil && least > 0 {
			return nil
		}
		return a.empty()
	}
	if n.nullable {
		least = 0 // any of them may be the empty text
	}
	if least == 1 && most == 1 {
		return n
	}
	return a.intern(identity{kind: repeat, a: n.id, min: least, max: most}, func() *node {
		return &node{a: n, min: least, max: most, nullable: least == 0}
	})
}
