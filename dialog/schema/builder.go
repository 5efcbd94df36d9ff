package schema

import (
	"encoding/json"
)

// Builder makes a grammar of parts: JSON values by schemas between the words and
// special tokens that a codec has around them. It is not safe for concurrent use.
type Builder struct{ a *automaton }

// Expression is a part of a grammar, a set of texts. Expressions of one Builder may
// be used in any number of others.
type Expression struct{ n *node }

// NewBuilder returns a builder of one grammar.
func NewBuilder() *Builder { return &Builder{newAutomaton()} }

// Grammar ends the building.
func (b *Builder) Grammar(e Expression) *Grammar { return &Grammar{b.a, e.n} }

// Value is the JSON values that satisfy a schema.
func (b *Builder) Value(schema json.RawMessage) (Expression, error) {
	rule, err := b.rule(schema)
	if err != nil {
		return Expression{}, err
	}
	return Expression{b.a.value(rule, 0)}, nil
}

// Reply accepts the reply for a schema of model.Form: as Value does, except that `{}` is
// any object.
func (b *Builder) Reply(schema json.RawMessage) (Expression, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(schema, &members) == nil && len(members) == 0 {
		return b.Object(schema)
	}
	return b.Value(schema)
}

// Object is the JSON objects that satisfy a schema.
func (b *Builder) Object(schema json.RawMessage) (Expression, error) {
	rule, err := b.rule(schema, objectsAlone())
	if err != nil {
		return Expression{}, err
	}
	return Expression{b.a.value(rule, 0)}, nil
}

// Property is the strings, without quotation marks and escapes, that make an object
// satisfy a schema as its only property of that name.
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
		return Expression{}, (&document{}).refuse("no string is enough as the only property %q", name)
	}
	return Expression{n}, nil
}

// Text is any valid UTF-8.
func (b *Builder) Text() Expression {
	return Expression{b.a.repeat(b.a.anyRune(bare), 0, unbounded)}
}

// Literal accepts one text.
func (b *Builder) Literal(text string) Expression { return Expression{b.a.literal(text)} }

// Special is a special token, which has no bytes.
func (b *Builder) Special(token int32) Expression { return Expression{b.a.special(token)} }

// Sequence accepts its parts one after the other.
func (b *Builder) Sequence(parts ...Expression) Expression {
	return Expression{b.a.sequence(nodes(parts)...)}
}

// Choice is any of the options.
func (b *Builder) Choice(options ...Expression) Expression {
	return Expression{b.a.choice(nodes(options)...)}
}

// Repeat is part at least so often, and if most is not negative at most so often.
func (b *Builder) Repeat(part Expression, least, most int) Expression {
	return Expression{b.a.repeat(part.n, least, max(most, unbounded))}
}

func (b *Builder) rule(schema json.RawMessage, besides ...*document) (int, error) {
	root, err := readDocument(schema)
	if err != nil {
		return 0, err
	}
	rule, err := b.a.compile(root, besides...)
	if err != nil {
		return 0, err
	}
	if b.a.rules[rule].cost > MaxDepth {
		return 0, root.refuse("no value of at most %d levels satisfies it", MaxDepth)
	}
	return rule, nil
}

// objectsAlone is the schema of all objects.
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
