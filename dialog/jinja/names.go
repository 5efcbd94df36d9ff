package jinja

import "slices"

// Jinja decides before it runs a template which variable a name means: each body
// that has a scope of its own (a loop's, a macro's, a captured block's) has its own
// variable of a name as soon as it assigns to it anywhere. That variable begins,
// each time the body is entered, as the one outside, as what the caller gave, or,
// where the body assigns to it before it reads it, as undefined. A run looks names
// up outwards from the innermost scope, which comes to the same as long as a scope
// begins with the last kind bound to nothing.

// names are the names that one body mentions, without the bodies inside of it.
type names struct {
	outer *names
	// known says of each name whether its first mention assigns it in any case; it is
	// nil for the filters of a {% set %} block.
	known map[string]bool
	unset []string // known, assigned first and unknown outside
	// copied are the other assigned names. They begin with their value outside.
	copied []string
	// assigned has the names that are assigned anywhere, given those that get a value
	// whenever the body is entered.
	assigned, given map[string]bool
	// level counts the bodies around this one. function says that Jinja makes a function
	// of it, with variables that live as long as what refers to them.
	level    int
	function bool
	// inLoop says that break and continue have a loop here.
	inLoop      bool
	conditional int // so many "if" are open
}

// mention is one name in the source.
type mention struct {
	name     string
	assigned bool
}

// loose is a name that has to be known around it.
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

// note says that a name is assigned, or read, in the statement that was read last.
func (n *names) note(name string, assigned bool) {
	if _, found := n.known[name]; !found && n.known != nil {
		n.known[name] = assigned && n.conditional == 0
	}
	if assigned && n.known != nil {
		n.assigned[name] = true
	}
}

// give says that a target, or a name, has a value whenever the body is entered.
func (n *names) give(t *target) {
	for i := range t.parts {
		n.give(&t.parts[i])
	}
	if !t.tuple {
		n.given[t.name] = true
	}
}

// owns says whether a name is a variable of this body: one that it gives, assigns, or
// reads although no body around it has it.
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

// knows says whether a scope or one around it mentions or gives a name.
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

// refuse reports the first of the unknown filters and tests from one on, where
// Python refuses them although nothing uses them.
func (p *parser) refuse(from int) {
	if len(p.unknown) > from {
		panic(p.unknown[from])
	}
}

// reads says whether a name is read before it is assigned, in what was read of the
// source since so many mentions.
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
