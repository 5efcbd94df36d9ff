package schema

import (
	"encoding/json"
	"regexp"
	"slices"
)

// Types is a set of the types that JSON values have. A number that is not an integer has
// the type of fractions alone.
type Types struct{ of types }

// Null reports whether a value may be null.
func (t Types) Null() bool { return t.of&null != 0 }

// Boolean reports whether a value may be true or false.
func (t Types) Boolean() bool { return t.of&boolean != 0 }

// Integer reports whether a value may be an integer.
func (t Types) Integer() bool { return t.of&integer != 0 }

// Fraction reports whether a value may be a number that is no integer.
func (t Types) Fraction() bool { return t.of&fraction != 0 }

// String reports whether a value may be a string.
func (t Types) String() bool { return t.of&text != 0 }

// Array reports whether a value may be an array.
func (t Types) Array() bool { return t.of&array != 0 }

// Object reports whether a value may be an object.
func (t Types) Object() bool { return t.of&object != 0 }

// Names returns the names that schemas have for the types.
func (t Types) Names() []string {
	var names []string
	for _, one := range []struct {
		of   types
		name string
	}{{array, "array"}, {boolean, "boolean"}, {number, "number"}, {null, "null"}, {object, "object"}, {text, "string"}} {
		switch {
		case t.of&one.of == 0:
		case t.of&number == integer && one.of == number:
			names = append(names, "integer")
		default:
			names = append(names, one.name)
		}
	}
	return names
}

// Arguments has the types of the properties of the objects that satisfy a schema, for
// codecs that write each property by itself. It also reads schemas that no grammar can be
// made of.
type Arguments struct {
	c   *compiler
	all [][]objectPart // alternatives, each with the parts that hold together
}

// ReadArguments reads the schema of an object. It returns an error if the schema's
// references and alternatives can't be resolved.
func ReadArguments(schema json.RawMessage) (*Arguments, error) {
	root, err := readDocument(schema)
	if err != nil {
		return nil, err
	}
	s := &Arguments{c: newCompiler(newAutomaton(), root)}
	found, err := s.c.alternatives(root)
	if err != nil {
		return nil, err
	}
	for _, one := range found {
		f, err := one.read()
		if err != nil {
			return nil, err
		}
		if f.types&object != 0 {
			s.all = append(s.all, f.objects)
		}
	}
	return s, nil
}

// Names returns the names of the properties that the schema lists or requires, in its
// order.
func (s *Arguments) Names() []string {
	var names []string
	for _, parts := range s.all {
		names = append(names, listed(parts)...)
	}
	return unique(names)
}

// Types returns the types that a property may have. untyped is true if the schema names
// none: the types are then strings and those that its other keywords are about. An
// alternative that lists properties says nothing about others.
func (s *Arguments) Types(name string) (t Types, untyped bool, err error) {
	untyped = true
	for _, parts := range s.all {
		found, err := s.alternatives(parts, name)
		if err != nil {
			return Types{}, false, err
		}
		for _, one := range found {
			f, err := one.read()
			if err != nil {
				return Types{}, false, err
			}
			if f.possible() == anything {
				t.of |= text | one.about()
			} else {
				t.of, untyped = t.of|f.possible(), false
			}
		}
	}
	if untyped {
		t.of |= text
	}
	return t, untyped, nil
}

// alternatives returns the schemas of a property where the parts hold. It returns none if
// the parts list other properties alone.
func (s *Arguments) alternatives(parts []objectPart, name string) ([]conjunction, error) {
	var all []*document
	closed := false
	for _, part := range parts {
		found, err := part.under(name)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		closed = closed || part.properties != nil
	}
	if len(all) == 0 && closed && !slices.Contains(listed(parts), name) {
		return nil, nil
	}
	return s.c.together(all)
}

// about returns the types of which keywords of the schemas say something.
func (c conjunction) about() types {
	var about types
	for _, d := range c {
		for _, m := range d.members {
			switch m.name {
			case "properties", "required", "additionalProperties":
				about |= object
			case "items", "prefixItems", "additionalItems", "minItems", "maxItems":
				about |= array
			case "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum":
				about |= number
			default:
				if of := refused(m.name); of != anything {
					about |= of
				}
			}
		}
	}
	return about
}

// Members are the objects of one alternative of a schema, for codecs that write each
// property by itself.
type Members struct {
	Listed []Member
	// Others is the value of one property with another name, if the schema says something
	// about those.
	Others *Member
}

// Member is one property.
type Member struct {
	Name     string // empty for others
	Required bool
	// Values are the values that are not strings, as JSON. Strings are the strings, with
	// neither quotation marks nor escapes. Either may be empty.
	Values, Strings Expression
}

// Members returns the objects that satisfy a schema. Each object satisfies the schema that
// has the required members and any of the others, at most one of them not listed.
func (b *Builder) Members(schema json.RawMessage) ([]Members, error) {
	rule, err := b.rule(schema, objectsAlone())
	if err != nil {
		return nil, err
	}
	var all []Members
	for _, s := range b.a.rules[rule].shapes {
		o, ok := s.(*objects)
		switch {
		case !ok:
			return nil, (&document{}).refuse("enum or const of whole objects can't be written property by property")
		case o.cost(b.a.rules) > MaxDepth:
			continue
		}
		var one Members
		for _, p := range o.properties {
			one.Listed = append(one.Listed, b.member(p))
		}
		if o.open && !o.closed {
			m := b.member(property{rule: o.rest})
			one.Others = &m
		}
		all = append(all, one)
	}
	return all, nil
}

func (b *Builder) member(p property) Member {
	m := Member{Name: p.name, Required: p.required}
	var values, strings []*node
	for _, s := range b.a.rules[p.rule].shapes {
		switch s := s.(type) {
		case *texts:
			strings = append(strings, s.inner)
		case constants:
			values = append(values, slices.DeleteFunc(slices.Clone(s), func(v *document) bool { return v.kind == '"' }).node(b.a, 1))
			strings = append(strings, s.bareTexts(b.a))
		default:
			values = append(values, s.node(b.a, 1))
		}
	}
	m.Values, m.Strings = Expression{b.a.choice(values...)}, Expression{b.a.choice(strings...)}
	return m
}

// Name returns the expression of the names that are not listed and have none of the
// characters.
func (b *Builder) Name(without string, names []string) (Expression, error) {
	n := b.a.pattern(mustPattern("[^"+regexp.QuoteMeta(without)+"]+"), bare)
	var options []*node
	for _, name := range names {
		options = append(options, b.a.literal(name))
	}
	if len(options) == 0 {
		return Expression{n}, nil
	}
	n, err := b.a.without(n, b.a.choice(options...))
	return Expression{n}, err
}

// Unclosed returns the texts of e in which no "</" occurs. It returns an error if there
// are too many states of e to tell them apart.
func (b *Builder) Unclosed(e Expression) (Expression, error) {
	n, err := b.a.withoutClosing(e.n)
	return Expression{n}, err
}

// Except returns the texts of e that don't match the expression as a whole. It returns an
// error if there are too many states of e to tell them apart.
func (b *Builder) Except(e Expression, expression string) (Expression, error) {
	n, err := b.a.without(e.n, b.a.pattern(mustPattern(expression), bare))
	return Expression{n}, err
}

// Empty reports whether no text is in the expression.
func (e Expression) Empty() bool { return e.n == nil }
