package schema

import "slices"

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
