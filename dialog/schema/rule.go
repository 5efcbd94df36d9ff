package schema

import "slices"

// MaxDepth is how many objects and arrays may be open at once. Schemas that refer
// to themselves, and values that may be anything, end there.
const MaxDepth = 32

const (
	never     = MaxDepth + 1 // the cost of a rule without a finite value
	mostRules = 1 << 12
	mostWork  = 1 << 20
)

// rule is a schema in its compiled form: each of its values has one of the shapes.
type rule struct {
	shapes []shape
	// cost is how many objects and arrays have to be open at once, at least, to write a
	// value.
	cost int
}

// shape is a set of values of one type.
type shape interface {
	cost(rules []*rule) int
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

// compile returns the rule of the root. Its values satisfy all schemas of besides, too.
func (a *automaton) compile(root *document, besides ...*document) (int, error) {
	c := &compiler{automaton: a, root: root, resolved: map[*document][]conjunction{}, known: map[string]int{}}
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
	return top, nil
}

// rule returns the rule of the values that satisfy all of the schemas. The rule is filled
// in later, so that schemas may refer to themselves.
func (c *compiler) rule(schemas []*document) (int, error) {
	key := conjunction{}.and(schemas).key()
	if r, known := c.known[key]; known {
		return r, nil
	}
	if len(c.rules) > mostRules {
		return 0, c.root.refuse("more than %d schemas", mostRules)
	}
	all := []conjunction{{}}
	for _, d := range schemas {
		found, err := c.alternatives(d)
		if err != nil {
			return 0, err
		}
		if all, err = c.product(all, found, d); err != nil {
			return 0, err
		}
	}
	c.rules = append(c.rules, &rule{})
	r := len(c.rules) - 1
	c.known[key] = r
	c.pending = append(c.pending, pending{r, all})
	return r, nil
}

func (c *compiler) workOut(p pending) error {
	for _, all := range p.of {
		f, err := all.facts()
		if err != nil {
			return err
		}
		shapes, err := c.shapes(f)
		if err != nil {
			return err
		}
		c.rules[p.rule].shapes = append(c.rules[p.rule].shapes, shapes...)
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
