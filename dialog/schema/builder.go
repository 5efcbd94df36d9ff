package schema

import (
	"encoding/json"
)

// Builder makes a grammar of parts: JSON values by schemas, and the words and special
// tokens that a codec writes around them. It is not safe for concurrent use.
type Builder struct{ a *automaton }

// Expression is a part of a grammar, a set of texts. Expressions of one Builder may
// be used in any number of others.
type Expression struct{ n *node }

// NewBuilder returns a builder of one grammar.
func NewBuilder() *Builder { return &Builder{newAutomaton()} }

// Grammar returns the grammar of an expression.
func (b *Builder) Grammar(e Expression) *Grammar {
	b.a.mu.Lock()
	defer b.a.mu.Unlock()
	b.a.built = true
	return &Grammar{b.a, e.n}
}

// Value returns the expression of the JSON values that satisfy a schema.
func (b *Builder) Value(schema json.RawMessage) (Expression, error) {
	rule, err := b.rule(schema)
	if err != nil {
		return Expression{}, err
	}
	return Expression{b.a.value(rule, 0)}, nil
}

// Reply returns the expression of the replies for a schema of model.Form. It works like
// Value, except that `{}` means any object.
func (b *Builder) Reply(schema json.RawMessage) (Expression, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(schema, &members) == nil && len(members) == 0 {
		return b.Object(schema)
	}
	return b.Value(schema)
}

// Object returns the expression of the JSON objects that satisfy a schema.
func (b *Builder) Object(schema json.RawMessage) (Expression, error) {
	rule, err := b.rule(schema, objectsAlone())
	if err != nil {
		return Expression{}, err
	}
	return Expression{b.a.value(rule, 0)}, nil
}

// Property returns the expression of the strings that make an object satisfy a schema if
// they are its only property and have that name. The strings have no quotation marks and
// no escapes.
func (b *Builder) Property(schema json.RawMessage, name string) (Expression, error) {
	rule, err := b.rule(schema, objectsAlone())
	if err != nil {
		return Expression{}, err
	}
	var options []*node
	for _, s := range b.a.rules[rule].shapes {
		if o, ok := s.(*objects); ok {
			options = append(options, o.soleText(b.a, name))
		}
	}
	n := b.a.choice(options...)
	if n == nil {
		return Expression{}, (&document{}).refuse("no string can be the only value of property %q", name)
	}
	return Expression{n}, nil
}

// Text returns the expression of any valid UTF-8.
func (b *Builder) Text() Expression {
	return Expression{b.a.repeat(b.a.anyRune(bare), 0, unbounded)}
}

// Literal returns the expression of one text.
func (b *Builder) Literal(text string) Expression { return Expression{b.a.literal(text)} }

// Special returns the expression of a special token, which has no bytes.
func (b *Builder) Special(token int32) Expression { return Expression{b.a.special(token)} }

// Sequence returns the expression of its parts, one after the other.
func (b *Builder) Sequence(parts ...Expression) Expression {
	return Expression{b.a.sequence(nodes(parts)...)}
}

// Choice returns the expression of any one of the options.
func (b *Builder) Choice(options ...Expression) Expression {
	return Expression{b.a.choice(nodes(options)...)}
}

// Repeat returns the expression of part at least least times and, if most is not
// negative, at most most times.
func (b *Builder) Repeat(part Expression, least, most int) Expression {
	return Expression{b.a.repeat(part.n, least, max(most, unbounded))}
}

func (b *Builder) rule(schema json.RawMessage, besides ...*document) (int, error) {
	root, err := readDocument(schema)
	if err != nil {
		return 0, err
	}
	return b.a.compile(root, besides...)
}

// objectsAlone returns the schema of all objects.
func objectsAlone() *document {
	d := &document{kind: '{', id: -1}
	d.add("type", &document{kind: '"', text: "object", id: -2})
	return d
}

func nodes(parts []Expression) []*node {
	all := make([]*node, len(parts))
	for i, p := range parts {
		all[i] = p.n
	}
	return all
}
