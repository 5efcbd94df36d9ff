package schema

import (
	"encoding/binary"
	"math/big"
	"slices"
	"strconv"
	"strings"
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

// constants is the shape of the values of enum and const.
type constants []*document

func (c constants) cost([]*rule) int {
	if len(c) == 0 {
		return never
	}
	return 0
}

func (c constants) needs() []int { return nil }

func (c constants) node(a *automaton, _ int) *node {
	var options []*node
	for _, v := range c {
		options = append(options, a.constant(v))
	}
	return a.choice(options...)
}

// bareTexts returns the strings among the constants, without quotes or escapes.
func (c constants) bareTexts(a *automaton) *node {
	var options []*node
	for _, v := range c {
		if v.kind == '"' {
			options = append(options, a.literal(v.text))
		}
	}
	return a.choice(options...)
}

// constants returns the values of enum and const that the other keywords allow.
func (c *compiler) constants(f *facts) ([]shape, error) {
	own, err := c.newTexts(f)
	if err != nil && f.possible()&text != 0 {
		return nil, err
	}
	var kept constants
	for _, v := range f.values {
		if v.types()&f.types == 0 {
			continue
		}
		fits := true
		switch v.kind {
		case '0':
			fits, err = f.allow(v)
		case '"':
			fits = c.matches(own.inner, v.text)
		case '[', '{':
			err = f.untouched(v)
		}
		if err != nil {
			return nil, err
		}
		if fits {
			kept = append(kept, v)
		}
	}
	return []shape{kept}, nil
}

// untouched refuses an array or object that other keywords restrict as well.
func (f *facts) untouched(v *document) error {
	plain := true
	for _, part := range f.arrays {
		plain = plain && (v.kind == '{' || !part.closes && (part.items == nil || part.items.kind == 't') && f.size == count{0, unbounded})
	}
	for _, part := range f.objects {
		plain = plain && (v.kind == '[' || part.properties == nil && len(part.required) == 0 && (part.additional == nil || part.additional.kind == 't'))
	}
	if !plain {
		return v.refuse("enum or const has an array or object among its values, and other keywords restrict arrays or objects")
	}
	return nil
}

// matches reports whether n accepts text.
func (a *automaton) matches(n *node, text string) bool {
	for i := 0; n != nil && i < len(text); i++ {
		n = a.derive(n, int32(text[i]))
	}
	return n != nil && n.nullable
}

// constant returns the expression of one value, with its members in the order of the
// schema.
func (a *automaton) constant(v *document) *node {
	comma := a.literal("")
	parts := []*node{}
	switch v.kind {
	case '[':
		for _, item := range v.items {
			parts = append(parts, comma, a.constant(item))
			comma = a.comma()
		}
	case '{':
		for _, m := range v.members {
			parts = append(parts, comma, a.literal(spell(m.name, quoted)), a.colon(), a.constant(m.value))
			comma = a.comma()
		}
	default:
		return a.literal(v.spelled())
	}
	return a.enclose(v.kind, parts...)
}

// spelled returns a text that identifies a value: values with the same text are equal.
func (d *document) spelled() string {
	switch d.kind {
	case 'n':
		return "null"
	case 't':
		return "true"
	case 'f':
		return "false"
	case '0':
		return d.text
	case '"':
		return spell(d.text, quoted)
	}
	all := string(d.kind)
	for _, item := range d.items {
		all += item.spelled() + ","
	}
	for _, m := range d.members {
		all += spell(m.name, quoted) + ":" + m.value.spelled() + ","
	}
	return all
}

// White space: one space may follow a comma or a colon. No other white space is allowed.

func (a *automaton) comma() *node { return a.sequence(a.literal(","), a.optional(a.literal(" "))) }

func (a *automaton) colon() *node { return a.sequence(a.literal(":"), a.optional(a.literal(" "))) }

// enclose puts parts in the brackets that begin with open.
func (a *automaton) enclose(open byte, parts ...*node) *node {
	return a.sequence(a.literal(string(open)), a.sequence(parts...), a.literal(string(open+2)))
}

// types is a set of JSON types. A number is an integer or a fraction.
type types uint8

const (
	null types = 1 << iota
	boolean
	integer
	fraction
	text
	array
	object

	number   = integer | fraction
	anything = null | boolean | number | text | array | object
)

// typesNamed returns the types that a value of the keyword "type" names.
func typesNamed(name string) types {
	return map[string]types{
		"null": null, "boolean": boolean, "integer": integer, "number": number, "string": text, "array": array, "object": object,
	}[name]
}

// restricts reports whether a schema restricts values itself, apart from the schemas that
// it refers to.
func (d *document) restricts() bool {
	held := []string{"type", "enum", "const", "pattern", "format",
		"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
		"properties", "required", "additionalProperties", "prefixItems", "items", "additionalItems"}
	return slices.ContainsFunc(d.members, func(m member) bool { return slices.Contains(held, m.name) || refused(m.name) != 0 })
}

// refused returns the types of the values that a keyword restricts, if the keyword
// restricts values and is not supported. A keyword that is neither here nor read by other
// functions is an annotation.
func refused(keyword string) types {
	switch keyword {
	case "not", "if", "$dynamicRef", "$recursiveRef", "extends", "disallow":
		return anything
	case "multipleOf", "divisibleBy":
		return number
	case "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependentRequired",
		"dependentSchemas", "dependencies", "unevaluatedProperties":
		return object
	case "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems":
		return array
	}
	return 0
}

// count reads a number of characters or items.
func (d *document) count() (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(d.text, ".0"))
	if d.kind != '0' || err != nil || n < 0 || n > 1<<30 {
		return 0, d.refuse("want a whole number of at least 0")
	}
	return n, nil
}

// number reads a number exactly.
func (d *document) number() (*big.Rat, error) {
	if d.kind != '0' {
		return nil, d.refuse("want a number")
	}
	// A short text can be a number of a million digits.
	_, exponent, _ := strings.Cut(strings.ToLower(d.text), "e")
	if e, err := strconv.Atoi(exponent); exponent != "" && (err != nil || e < -400 || e > 400) || len(d.text) > 400 {
		return nil, d.refuse("number out of range")
	}
	n, ok := new(big.Rat).SetString(d.text)
	if !ok {
		return nil, d.refuse("want a number")
	}
	return n, nil
}
