package jinja

import (
	"maps"
	"slices"
)

// Jinja decides before it runs a template which variable a name means: each body
// that has a scope of its own (a loop's, a macro's, a captured block's) has its own
// variable of a name as soon as it assigns to it anywhere, and that variable
// begins, each time the body is entered, as a copy of the one outside, as what the
// caller gave, or undefined. The three files about names (symbols, resolve, frame)
// follow those rules, because templates depend on their odd ends.

// identity is a variable: of all variables of one name, that of one level of
// nesting. Bodies beside each other share it.
type identity struct {
	level int
	name  string
}

// origin says what a variable is when its body is entered.
type origin int

const (
	given    origin = iota // something assigns it before
	lookedUp               // in what the caller of Render gave, and in the globals
	copied                 // from the variable outside
	unset
)

type load struct {
	origin origin
	outer  location // of the variable that is copied
	name   string
}

// function is a body that is run with variables of its own in memory: the whole
// template, a macro, the test of a loop.
type function struct {
	outer *function
	slots map[identity]int
}

func (f *function) slot(id identity) int {
	n, found := f.slots[id]
	if !found {
		n = len(f.slots)
		f.slots[id] = n
	}
	return n
}

// symbols are the names of one scope.
type symbols struct {
	outer    *symbols
	level    int
	function *function
	refs     map[string]identity
	loads    map[identity]load
	order    []identity // of loads
	stores   map[string]bool
	// inLoop says that break and continue have a loop here.
	inLoop bool
}

func newSymbols(outer *symbols, f *function) *symbols {
	s := &symbols{outer: outer, function: f, refs: map[string]identity{}, loads: map[identity]load{}, stores: map[string]bool{}}
	if outer != nil {
		s.level = outer.level + 1
		s.inLoop = outer.inLoop && outer.function == f
	}
	return s
}

func (s *symbols) find(name string) (identity, *symbols) {
	for ; s != nil; s = s.outer {
		if id, found := s.refs[name]; found {
			return id, s
		}
	}
	return identity{}, nil
}

// location is where a frame of s finds the variable of a name that is known.
func (s *symbols) location(name string) location {
	id, owner := s.find(name)
	if owner == nil {
		return location{slot: -1}
	}
	p := location{slot: owner.function.slot(id)}
	for f := s.function; f != owner.function; f = f.outer {
		p.hops++
	}
	return p
}

// given says whether the variable of a name is a parameter or that of a loop.
func (s *symbols) given(name string) bool {
	id, owner := s.find(name)
	return owner != nil && owner.loads[id].origin == given
}

func (s *symbols) define(name string, l load) {
	id := identity{s.level, name}
	s.refs[name] = id
	s.setLoad(id, l)
}

func (s *symbols) setLoad(id identity, l load) {
	if _, found := s.loads[id]; !found {
		s.order = append(s.order, id)
	}
	s.loads[id] = l
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, found := s.refs[name]; found {
		return
	}
	if s.outer != nil {
		if _, owner := s.outer.find(name); owner != nil {
			s.define(name, load{copied, s.outerLocation(name), name})
			return
		}
	}
	s.define(name, load{origin: unset})
}

// outerLocation is where a frame of s finds the variable that scopes around s have.
func (s *symbols) outerLocation(name string) location {
	p := s.outer.location(name)
	if s.outer.function != s.function {
		p.hops++
	}
	return p
}

func (s *symbols) declare(name string) {
	s.stores[name] = true
	s.define(name, load{origin: given})
}

func (s *symbols) load(name string) {
	if _, owner := s.find(name); owner == nil {
		s.define(name, load{origin: lookedUp, name: name})
	}
}

func (s *symbols) branch() *symbols {
	b := *s
	b.refs, b.loads, b.stores = map[string]identity{}, map[identity]load{}, map[string]bool{}
	b.order = append([]identity(nil), s.order...)
	for k, v := range s.refs {
		b.refs[k] = v
	}
	for k, v := range s.loads {
		b.loads[k] = v
	}
	for k := range s.stores {
		b.stores[k] = true
	}
	return &b
}

// join takes over what branches of an "if" did: what only some of them assign
// keeps, where they don't, the value from outside.
func (s *symbols) join(branches ...*symbols) {
	inBranches := map[string]bool{}
	for _, b := range branches {
		for name := range b.stores {
			inBranches[name] = inBranches[name] || !s.stores[name]
		}
	}
	for _, b := range branches {
		for name, id := range b.refs {
			s.refs[name] = id
		}
		for _, id := range b.order {
			s.setLoad(id, b.loads[id])
		}
		for name := range b.stores {
			s.stores[name] = true
		}
	}
	for _, name := range sorted(inBranches) {
		if !inBranches[name] {
			continue
		}
		l := load{origin: lookedUp, name: name}
		if s.outer != nil {
			if _, owner := s.outer.find(name); owner != nil {
				l = load{copied, s.outerLocation(name), name}
			}
		}
		id, _ := s.find(name)
		s.setLoad(id, l)
	}
}

// expressions notes the names that expressions read.
func (s *symbols) expressions(all ...expression) {
	for _, e := range all {
		if e == nil {
			continue
		}
		if v, is := e.(*variable); is {
			s.load(v.name)
		}
		s.expressions(e.operands()...)
	}
}

func (s *symbols) target(t target, declare bool) {
	switch {
	case t.tuple:
		for _, part := range t.parts {
			s.target(part, declare)
		}
	case t.attribute != "":
		s.load(t.name)
	case declare:
		s.declare(t.name)
	default:
		s.store(t.name)
	}
}

// block notes the names of statements, but not those of bodies with a scope.
func (s *symbols) block(body block) {
	for _, one := range body {
		switch n := one.(type) {
		case *output:
			s.expressions(n.of)
		case *assignment:
			s.expressions(n.value)
			s.target(n.target, false)
		case *captureAssignment:
			s.target(n.target, false)
		case *branches:
			s.branches(n.tests, n.bodies, n.otherwise)
		case *loop:
			s.expressions(n.of)
		case *macro:
			s.store(n.name)
		case *callBlock:
			if n.of != nil {
				s.expressions(n.of)
			}
		case *filterBlock:
			s.expressions(n.filtered)
		case *withBlock:
			s.expressions(n.values...)
		}
	}
}

// branches notes an "if": its first body, the other bodies with their tests, and
// the last one are branches.
func (s *symbols) branches(tests []expression, bodies []block, otherwise block) {
	s.expressions(tests[0])
	first, others, last := s.branch(), s.branch(), s.branch()
	first.block(bodies[0])
	for i := range tests[1:] {
		others.branches(tests[i+1:i+2], bodies[i+1:i+2], nil)
	}
	last.block(otherwise)
	s.join(first, others, last)
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// visit calls see for everything in statements, bodies with a scope included: for
// names that are read, and for names that are assigned. It ends when see gives
// false.
func visit(body block, see func(name string, assigned bool) bool) bool {
	for _, one := range body {
		if !visitStatement(one, see) {
			return false
		}
	}
	return true
}

func visitStatement(one statement, see func(string, bool) bool) bool {
	expressions := func(all ...expression) bool { return visitExpressions(all, see) }
	targets := func(all ...target) bool { return visitTargets(all, see) }
	switch n := one.(type) {
	case *output:
		return expressions(n.of)
	case *assignment:
		return targets(n.target) && expressions(n.value)
	case *captureAssignment:
		return targets(n.target) && expressions(n.filtered) && visit(n.body, see)
	case *branches:
		for i := range n.tests {
			if !expressions(n.tests[i]) || !visit(n.bodies[i], see) {
				return false
			}
		}
		return visit(n.otherwise, see)
	case *loop:
		return targets(n.target) && expressions(n.of) && visit(n.body, see) && visit(n.fallback, see) && expressions(n.test)
	case *macro:
		return visitMacro(n, see)
	case *callBlock:
		return (n.of == nil || expressions(n.of)) && visitMacro(n.body, see)
	case *filterBlock:
		return visit(n.body, see) && expressions(n.filtered)
	case *withBlock:
		return targets(n.targets...) && expressions(n.values...) && visit(n.body, see)
	}
	return true
}

func visitMacro(n *macro, see func(string, bool) bool) bool {
	for _, p := range n.parameters {
		if !see(p.name, true) {
			return false
		}
	}
	for _, p := range n.parameters {
		if !visitExpressions([]expression{p.fallback}, see) {
			return false
		}
	}
	return visit(n.body, see)
}

func visitTargets(all []target, see func(string, bool) bool) bool {
	for _, t := range all {
		switch {
		case t.tuple:
			if !visitTargets(t.parts, see) {
				return false
			}
		case t.attribute == "" && !see(t.name, true):
			return false
		}
	}
	return true
}

func visitExpressions(all []expression, see func(string, bool) bool) bool {
	for _, e := range all {
		if e == nil {
			continue
		}
		if v, is := e.(*variable); is && !see(v.name, false) {
			return false
		}
		if !visitExpressions(e.operands(), see) {
			return false
		}
	}
	return true
}

// undeclared says whether a body reads a name before anything in it assigns it.
func undeclared(body block, name string) bool {
	reads := false
	visit(body, func(seen string, assigned bool) bool {
		if seen != name {
			return true
		}
		reads = !assigned
		return false
	})
	return reads
}

// stores says whether a loop assigns to the variable that has its name.
func stores(t target, bodies ...block) bool {
	found := false
	see := func(seen string, assigned bool) bool {
		found = found || assigned && seen == loopName
		return !found
	}
	visitTargets([]target{t}, see)
	for _, body := range bodies {
		visit(body, see)
	}
	return found
}
