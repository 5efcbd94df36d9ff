package schema

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
