package schema

import (
	"slices"
	"unicode/utf8"
)

// maxProperties is how many properties one object may list.
const maxProperties = 1000

// objects is the shape of the objects of a schema.
type objects struct {
	properties []property
	rest       int  // rule of the values of other properties
	closed     bool // no other properties are allowed
	open       bool // the schema says something about other properties
}

type property struct {
	name     string
	rule     int
	required bool
}

// newObjects reads a schema's restrictions of objects. If the schema lists properties and
// does not restrict others, there are no others.
func (c *compiler) newObjects(f *facts) (shape, error) {
	o := &objects{}
	open := false
	required := map[string]bool{}
	var rest []*document
	for _, part := range f.objects {
		o.closed = o.closed || part.properties != nil
		open = open || part.additional != nil
		rest = append(rest, part.additional)
		for _, name := range part.required {
			required[name] = true
		}
	}
	o.closed, o.open = o.closed && !open, open
	names := listed(f.objects)
	if f.names != nil {
		// Only these names are allowed.
		o.closed = true
		names = slices.DeleteFunc(unique(append(names, f.names...)), func(name string) bool {
			return !slices.Contains(f.names, name) && !required[name]
		})
	}
	for _, name := range names {
		if len(o.properties) == maxProperties {
			return nil, f.objects[0].place.refuse("more than %d properties", maxProperties)
		}
		var schemas []*document
		for _, part := range f.objects {
			found, err := part.under(name)
			if err != nil {
				return nil, err
			}
			schemas = append(schemas, found...)
		}
		if f.names != nil && !slices.Contains(f.names, name) {
			schemas = append(schemas, &document{kind: 'f', pointer: f.objects[0].place.pointer, id: -3})
		}
		r, err := c.all(schemas)
		if err != nil {
			return nil, err
		}
		o.properties = append(o.properties, property{name, r, required[name]})
	}
	var err error
	o.rest, err = c.all(rest)
	return o, err
}

func unique(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(names, func(name string) bool {
		twice := seen[name]
		seen[name] = true
		return twice
	})
}

func (o *objects) cost(rules []*rule) int { return 1 + dearest(rules, o.needs()) }

func (o *objects) needs() []int {
	var needed []int
	for _, p := range o.properties {
		if p.required {
			needed = append(needed, p.rule)
		}
	}
	return needed
}

func (o *objects) node(a *automaton, depth int) *node {
	if depth+o.cost(a.rules) > MaxDepth {
		return nil
	}
	// From the last property to the first: first is what follows if there was no property
	// yet, later what follows if there was one.
	first, later := a.empty(), a.empty()
	if others := o.others(a, depth+1); others != nil {
		later = a.repeat(a.sequence(a.comma(), others), 0, unbounded)
		first = a.optional(a.sequence(others, later))
	}
	for _, p := range slices.Backward(o.properties) {
		with := a.sequence(a.literal(spell(p.name, quoted)), a.colon(), a.affordable(p.rule, depth+1), later)
		withComma := a.sequence(a.comma(), with)
		if p.required {
			first, later = with, withComma
		} else {
			first, later = a.choice(with, first), a.choice(withComma, later)
		}
	}
	return a.enclose('{', first)
}

// others returns the expression of a property that is not listed. Its name is written
// without escapes; otherwise an escaped spelling of a listed name would be allowed.
func (o *objects) others(a *automaton, depth int) *node {
	if o.closed {
		return nil
	}
	var listed []string
	for _, p := range o.properties {
		listed = append(listed, p.name)
	}
	slices.Sort(listed)
	quote := a.literal(`"`)
	anyName := a.repeat(a.plainRunes(0, utf8.MaxRune, quoted), 0, unbounded)
	name := a.scalar(a.sequence(quote, a.except(anyName, listed), quote))
	return a.sequence(name, a.colon(), a.affordable(o.rest, depth))
}

// soleText returns the expression of the texts, without quotes, that are enough as the
// only property.
func (o *objects) soleText(a *automaton, name string) *node {
	rule := o.rest
	if o.closed {
		rule = -1
	}
	for _, p := range o.properties {
		if p.name == name {
			rule = p.rule
		} else if p.required {
			return nil
		}
	}
	if rule < 0 {
		return nil
	}
	var options []*node
	for _, s := range a.rules[rule].shapes {
		switch s := s.(type) {
		case *texts:
			options = append(options, s.inner)
		case constants:
			options = append(options, s.bareTexts(a))
		}
	}
	return a.choice(options...)
}

// arrays is the shape of the arrays of a schema.
type arrays struct {
	prefix []int // rules of the first items
	rest   int   // rule of the items after them
	closed bool  // no items may follow the first ones
	size   count
}

// newArrays reads a schema's restrictions of arrays. If the schema lists first items and
// does not restrict the items after them, there are none after them.
func (c *compiler) newArrays(f *facts) (shape, error) {
	s := &arrays{size: f.size}
	length, open := 0, false
	for _, part := range f.arrays {
		length = max(length, len(part.prefix))
		s.closed = s.closed || part.closes
		open = open || part.items != nil
	}
	s.closed = s.closed && !open
	if f.size.most != unbounded {
		length = min(length, f.size.most)
	}
	for i := range length + 1 {
		var schemas []*document
		for _, part := range f.arrays {
			schemas = append(schemas, part.of(i))
		}
		r, err := c.all(schemas)
		if err != nil {
			return nil, err
		}
		if i < length {
			s.prefix = append(s.prefix, r)
		} else {
			s.rest = r
		}
	}
	return s, nil
}

func (s *arrays) cost(rules []*rule) int {
	if !s.possible() {
		return never
	}
	return 1 + dearest(rules, s.needs())
}

// possible reports whether there is an allowed number of items.
func (s *arrays) possible() bool {
	return (s.size.most == unbounded || s.size.least <= s.size.most) && (!s.closed || s.size.least <= len(s.prefix))
}

func (s *arrays) needs() []int {
	needed := s.prefix[:min(s.size.least, len(s.prefix))]
	if s.size.least > len(s.prefix) {
		needed = append(needed[:len(needed):len(needed)], s.rest)
	}
	return needed
}

func (s *arrays) node(a *automaton, depth int) *node {
	if depth+s.cost(a.rules) > MaxDepth {
		return nil
	}
	return a.enclose('[', s.from(a, depth+1, 0))
}

// from returns the expression of the items from the i-th on.
func (s *arrays) from(a *automaton, depth, i int) *node {
	var end *node
	if i >= s.size.least {
		end = a.empty()
	}
	comma := a.empty()
	if i > 0 {
		comma = a.comma()
	}
	if i < len(s.prefix) {
		return a.choice(end, a.sequence(comma, a.affordable(s.prefix[i], depth), s.from(a, depth, i+1)))
	}
	if s.closed || s.size.most == i {
		return end
	}
	item := a.affordable(s.rest, depth)
	least, most := max(s.size.least-i-1, 0), s.size.most
	if most != unbounded {
		most -= i + 1
	}
	return a.choice(end, a.sequence(comma, item, a.repeat(a.sequence(a.comma(), item), least, most)))
}
