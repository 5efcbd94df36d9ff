package jinja

import "slices"

// Jinja decides which variable a name means before it runs a template. Each body with its
// own scope (a loop's, a macro's, a captured block's) has its own variable of a name if
// it assigns to the name anywhere. That variable gets its first value each time the body
// is entered: the value of the variable outside, or the value that the caller gave. If
// the body assigns to the variable before it reads it, it begins as undefined. A run
// looks up names from the innermost scope outwards. The result is the same, as long as a
// scope begins by binding the variables of the last kind to nothing.

// names has the names that one body mentions, without those in the bodies inside of it.
type names struct {
	outer *names
	// known has each name that is mentioned. The value is true if the first mention
	// assigns the name and is not conditional. known is nil for the filters of a {% set
	// %} block.
	known map[string]bool
	unset []string // known names that are assigned first and are unknown outside
	// copied are the other assigned names. They begin with their value outside.
	copied []string
	// assigned has the names that are assigned anywhere in the body. given has the names
	// that always get a value when the body is entered.
	assigned, given map[string]bool
	// level is the number of bodies around this one. function is true if Jinja compiles
	// the body to a function, whose variables live as long as something refers to them.
	level    int
	function bool
	// inLoop is true if break and continue are allowed here.
	inLoop      bool
	conditional int // the number of "if" that are open
}

// mention is one name in the source.
type mention struct {
	name     string
	assigned bool
}

// loose is a name that has to be known in a scope around it.
type loose struct {
	token
	*names
}

// names begins a scope inside the current one.
func (p *parser) names() *names {
	n := &names{outer: p.scope, known: map[string]bool{}, assigned: map[string]bool{}, given: map[string]bool{}}
	if p.scope != nil {
		n.inLoop, n.level = p.scope.inLoop, p.scope.level+1
	}
	p.scopes = append(p.scopes, n)
	return n
}

func (p *parser) read(t token) {
	p.mentions = append(p.mentions, mention{t.text, false})
	if p.scope.known == nil {
		p.loose = append(p.loose, loose{t, p.scope.outer})
	}
	p.scope.note(t.text, false)
}

// note records that the statement that was read last assigns or reads a name.
func (n *names) note(name string, assigned bool) {
	if _, found := n.known[name]; !found && n.known != nil {
		n.known[name] = assigned && n.conditional == 0
	}
	if assigned && n.known != nil {
		n.assigned[name] = true
	}
}

// give records that a target always has a value when the body is entered.
func (n *names) give(t *target) {
	for i := range t.parts {
		n.give(&t.parts[i])
	}
	if !t.tuple {
		n.given[t.name] = true
	}
}

// owns reports whether a name is a variable of this body: one that is given or assigned,
// or one that the body reads although no body around it knows it.
func (n *names) owns(name string) bool {
	_, known := n.known[name]
	return n.given[name] || n.assigned[name] || known && !n.outer.knows(name)
}

func (n *names) assign(t *target) {
	for i := range t.parts {
		n.assign(&t.parts[i])
	}
	if !t.tuple {
		n.note(t.name, t.attribute == "")
	}
}

// knows reports whether a scope or one around it mentions or gives a name.
func (n *names) knows(name string) bool {
	for ; n != nil; n = n.outer {
		if _, found := n.known[name]; found || n.given[name] {
			return true
		}
	}
	return false
}

// resolve completes all scopes when the whole template is read.
func (p *parser) resolve() {
	p.refuse(0)
	for _, one := range p.loose {
		if !one.knows(one.text) {
			fail(ErrUnsupported, one.pos, "variable %s in this place", one.text)
		}
	}
	for _, n := range p.scopes {
		for name := range n.assigned {
			switch {
			case n.given[name]:
			case n.known[name] && !n.outer.knows(name):
				n.unset = append(n.unset, name)
			default:
				n.copied = append(n.copied, name)
			}
		}
	}
}

// refuse reports the first of the unknown filters and tests from index from on. It is
// called at the places where Python refuses them even if nothing uses them.
func (p *parser) refuse(from int) {
	if len(p.unknown) > from {
		panic(p.unknown[from])
	}
}

// reads reports whether a name is read before it is assigned. It looks at the mentions
// from index since on.
func (p *parser) reads(name string, since int) bool {
	for _, m := range p.mentions[since:] {
		if m.name == name {
			return !m.assigned
		}
	}
	return false
}

func (p *parser) mentioned(name string, since int) bool {
	return slices.ContainsFunc(p.mentions[since:], func(m mention) bool { return m.name == name })
}

func (p *parser) assigns(name string, since int) bool {
	for _, m := range p.mentions[since:] {
		if m.name == name && m.assigned {
			return true
		}
	}
	return false
}
