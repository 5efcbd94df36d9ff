package jinja

import (
	"maps"
	"slices"
)

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
