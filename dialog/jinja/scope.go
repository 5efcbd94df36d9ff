package jinja

// scope holds the variables of one run of a body. A nil value is undefined.
type scope struct {
	outer *scope
	names *names
	home  *activation
	bound []binding
	ended bool
}

type binding struct {
	name  string
	value any
}

// activation is one call of what Jinja compiles to a function of Python: the template, a
// macro, the body of a call, the test of a loop. open are the scopes that are entered in
// it, by their level.
type activation struct{ open map[int]*scope }

// within calls do in a new scope.
func (r *run) within(n *names, do func()) {
	s := r.enter(n, r.scope)
	r.scope = s
	r.begin(s)
	do()
	s.ended = true
	delete(s.home.open, n.level)
	r.scope = s.outer
}

// enter makes a scope.
func (r *run) enter(n *names, outer *scope) *scope {
	s := &scope{outer: outer, names: n}
	if n.function {
		s.home = &activation{}
		return s
	}
	if s.home = outer.home; s.home.open == nil {
		s.home.open = map[int]*scope{}
	}
	s.home.open[n.level] = s
	return s
}

// begin sets the variables of a scope to the values that they have when its body is
// entered.
func (r *run) begin(s *scope) {
	s.bound = s.bound[:0]
	for _, name := range s.names.unset {
		s.bound = append(s.bound, binding{name: name})
	}
	for _, name := range s.names.copied {
		s.bound = append(s.bound, binding{name, r.variable(s.outer, name)})
	}
}

func (s *scope) find(name string) *any {
	for i := range s.bound {
		if s.bound[i].name == name {
			return &s.bound[i].value
		}
	}
	return nil
}

func (s *scope) set(name string, v any) {
	if at := s.find(name); at != nil {
		*at = v
		return
	}
	s.bound = append(s.bound, binding{name, v})
}

// lookUp finds a variable: first in the scopes, then among the caller's variables, then
// among the globals.
func (r *run) lookUp(t token) any {
	v := r.variable(r.scope, t.text)
	switch {
	case v != nil && v != any(missing{}):
		return v
	case r.scope.assumesBound(t.text):
		return missing{}
	}
	return &undefined{what: t.text}
}

// variable returns the value of a name in a scope, or nil if it has none.
//
// A template may keep a macro longer than the body in which it was defined. In Python
// that body's variables have no values then. But Python names them only by the level of
// the body, so the macro sees the variables of a later body of the same level.
func (r *run) variable(s *scope, name string) any {
	for ; s != nil; s = s.outer {
		if s.ended && s.names.owns(name) {
			if later := s.home.open[s.names.level]; later != nil && later.names.owns(name) {
				return r.variable(later, name)
			}
			return nil
		}
		if at := s.find(name); at != nil {
			return *at
		}
	}
	if v, found := r.variables.get(name); found {
		return v
	}
	if call := globalOf(name); call != nil {
		return &function{call: call}
	}
	return nil
}

// assumesBound reports whether the name belongs to a body that always gives it a value.
// Python then does not check that it has one.
func (s *scope) assumesBound(name string) bool {
	for ; s != nil; s = s.outer {
		if s.names.owns(name) {
			return s.names.given[name]
		}
	}
	return false
}
