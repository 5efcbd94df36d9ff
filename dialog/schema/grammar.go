package schema

import (
	"encoding/json"
	"slices"
)

// Grammar is a set of texts. It is safe for concurrent use.
type Grammar struct {
	*automaton
	start *node
}

// Compile returns the grammar of the JSON values that satisfy a schema.
func Compile(schema json.RawMessage) (*Grammar, error) {
	b := NewBuilder()
	e, err := b.Value(schema)
	if err != nil {
		return nil, err
	}
	return b.Grammar(e), nil
}

// Matcher returns a matcher at the beginning of a text. Copies of a matcher are
// independent of it.
func (g *Grammar) Matcher() Matcher { return Matcher{g.automaton, g.start} }

// Matcher follows one text through a grammar, byte by byte. Its copies are cheap.
// It is not safe for concurrent use.
type Matcher struct {
	a  *automaton
	at *node // nil once the text has left the grammar
}

// Allowed returns the bytes that may come next. After any of them the text can be
// completed.
func (m *Matcher) Allowed() ByteSet {
	var s ByteSet
	if m.at != nil {
		m.a.mu.Lock()
		defer m.a.mu.Unlock()
		m.a.first(m.at, &s)
	}
	return s
}

// Step reads the next byte and reports whether it was allowed. After a byte that was not
// allowed, no byte is.
func (m *Matcher) Step(b byte) bool { return m.step(func() *node { return m.a.take(m.at, b) }) }

// StepSpecial takes a special token, as Step does a byte.
func (m *Matcher) StepSpecial(token int32) bool {
	return m.step(func() *node { return m.a.derive(m.at, specialSymbol(token)) })
}

func (m *Matcher) step(to func() *node) bool {
	if m.at != nil {
		m.a.mu.Lock()
		defer m.a.mu.Unlock()
		m.at = to()
	}
	return m.at != nil
}

// Complete reports whether the text may end here.
func (m *Matcher) Complete() bool { return m.at != nil && m.at.nullable }

// Final reports whether the text has to end here.
func (m *Matcher) Final() bool { return m.at != nil && m.at.kind == empty }

// MaxDepth is how many objects and arrays may be open at once. Schemas that refer
// to themselves, and values that may be anything, end there.
const MaxDepth = 32

const (
	never    = MaxDepth + 1 // the cost of a rule without a finite value
	maxRules = 1 << 12
	maxWork  = 1 << 20
)

// rule is a schema in its compiled form: each of its values has one of the shapes.
type rule struct {
	shapes []shape
	// cost is how many objects and arrays have to be open at once, at least, to write a
	// value.
	cost int
	// reasons say why there are no values, for as many of the alternatives as have none.
	reasons []error
}

// shape is a set of values of one type.
type shape interface {
	cost(rules []*rule) int
	// needs returns the rules of which each value holds a value.
	needs() []int
	// node makes the expression of the values inside depth open brackets.
	node(a *automaton, depth int) *node
}

func (r *rule) node(a *automaton, depth int) *node {
	var options []*node
	for _, s := range r.shapes {
		options = append(options, s.node(a, depth))
	}
	return a.choice(options...)
}

// affordable returns the expression of a rule's values inside depth open brackets, or nil
// if each of them would nest deeper than MaxDepth.
func (a *automaton) affordable(rule, depth int) *node {
	if depth+a.rules[rule].cost > MaxDepth {
		return nil
	}
	return a.value(rule, depth)
}

// compiler works out the rules of one schema.
type compiler struct {
	*automaton
	root     *document
	resolved map[*document][]conjunction
	known    map[string]int // rules by the key of the schemas that they are made of
	pending  []pending
	work     int
}

type pending struct {
	rule int
	of   []conjunction
}

func newCompiler(a *automaton, root *document) *compiler {
	return &compiler{automaton: a, root: root, resolved: map[*document][]conjunction{}, known: map[string]int{}}
}

// compile returns the rule of the root. Its values satisfy all schemas of besides, too.
func (a *automaton) compile(root *document, besides ...*document) (int, error) {
	c := newCompiler(a, root)
	first := len(a.rules)
	top, err := c.rule(append(besides, root))
	for err == nil && len(c.pending) > 0 {
		next := c.pending[0]
		c.pending = c.pending[1:]
		err = c.workOut(next)
	}
	if err != nil {
		a.rules = a.rules[:first]
		return 0, err
	}
	a.priceFrom(first)
	if a.rules[top].cost > MaxDepth {
		if reason := a.reason(top, map[int]bool{}); reason != nil {
			return 0, reason
		}
		return 0, root.refuse("no value of at most %d levels satisfies it", MaxDepth)
	}
	return top, nil
}

// reason returns why a rule has no values, or nil if it is not known.
func (a *automaton) reason(rule int, seen map[int]bool) error {
	if seen[rule] || a.rules[rule].cost <= MaxDepth {
		return nil
	}
	seen[rule] = true
	for _, s := range a.rules[rule].shapes {
		for _, needed := range s.needs() {
			if reason := a.reason(needed, seen); reason != nil {
				return reason
			}
		}
	}
	if reasons := a.rules[rule].reasons; len(reasons) > 0 {
		return reasons[0]
	}
	return nil
}

// rule returns the rule of the values that satisfy all of the schemas. The rule is filled
// in later, so that schemas may refer to themselves.
func (c *compiler) rule(schemas []*document) (int, error) {
	key := conjunction{}.and(schemas).key()
	if r, known := c.known[key]; known {
		return r, nil
	}
	if len(c.rules) > maxRules {
		return 0, c.root.refuse("more than %d schemas", maxRules)
	}
	all, err := c.together(schemas)
	if err != nil {
		return 0, err
	}
	c.rules = append(c.rules, &rule{})
	r := len(c.rules) - 1
	c.known[key] = r
	c.pending = append(c.pending, pending{r, all})
	return r, nil
}

// together returns the alternatives of the values that satisfy all of the schemas.
func (c *compiler) together(schemas []*document) ([]conjunction, error) {
	all := []conjunction{{}}
	for _, d := range schemas {
		found, err := c.alternatives(d)
		if err == nil {
			all, err = c.product(all, found, d)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *compiler) workOut(p pending) error {
	for _, all := range p.of {
		f, err := all.read()
		if err == nil {
			err = c.check(f)
		}
		if err != nil {
			return err
		}
		shapes, err := c.shapes(f)
		if err != nil {
			return err
		}
		r := c.rules[p.rule]
		r.shapes = append(r.shapes, shapes...)
		if reason := f.contradiction(shapes); reason != nil {
			r.reasons = append(r.reasons, reason)
		}
	}
	return nil
}

func (c *compiler) shapes(f *facts) ([]shape, error) {
	if f.limited {
		return c.constants(f)
	}
	var all []shape
	for _, one := range []struct {
		of    types
		shape func(*facts) (shape, error)
	}{
		{null, func(*facts) (shape, error) { return constants{{kind: 'n'}}, nil }},
		{boolean, func(*facts) (shape, error) { return constants{{kind: 't'}, {kind: 'f'}}, nil }},
		{number, c.newNumbers},
		{text, func(f *facts) (shape, error) { return c.newTexts(f) }},
		{array, c.newArrays},
		{object, c.newObjects},
	} {
		if f.types&one.of == 0 {
			continue
		}
		s, err := one.shape(f)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// priceFrom computes the costs of the rules from the index first on. Costs only fall, and
// each round makes the costs of one more level of nesting final.
func (a *automaton) priceFrom(first int) {
	rules := a.rules[first:]
	for _, r := range rules {
		r.cost = never
	}
	for changed := true; changed; {
		changed = false
		for _, r := range rules {
			best := r.cost
			for _, s := range r.shapes {
				best = min(best, s.cost(a.rules))
			}
			changed = changed || best < r.cost
			r.cost = best
		}
	}
}

// dearest returns the largest cost of the rules with these indices.
func dearest(rules []*rule, of []int) int {
	most := 0
	for _, r := range of {
		most = max(most, rules[r].cost)
	}
	return min(most, never)
}

// all returns the rule of the values that satisfy all schemas that are not nil.
func (c *compiler) all(schemas []*document) (int, error) {
	return c.rule(slices.DeleteFunc(schemas, func(d *document) bool { return d == nil }))
}

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
