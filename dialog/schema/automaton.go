package schema

import (
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

// A table that is full is cleared. Matchers keep their nodes, so only results that can be
// computed again are lost. A grammar that needs more gets a larger table of nodes, see
// forget.
const (
	fewestNodes = 1 << 17
	maxRows     = 1 << 12 // of 2 KiB
	maxMasks    = 1 << 9  // of 19 KiB with 150,000 tokens
)

// automaton holds the nodes of one grammar and the known steps between them. Steps are
// computed lazily, by derivatives of expressions (Brzozowski, 1964; for grammars that
// refer to themselves Might, Darais and Spiewak, 2011).
type automaton struct {
	mu sync.Mutex

	rules  []*rule
	nodes  map[identity]*node
	steps  map[step]*node
	bodies map[body]*node
	masks  map[maskOf]model.TokenSet

	maxNodes   int
	lastID     uint32
	generation uint32
	rows       int
	// visits counts the states of intersections that were looked at. It has no limit once
	// the grammar is built, because states are then looked at again.
	visits int
	built  bool
	// dead marks in rows that a byte leads nowhere; nil means that this is not computed
	// yet.
	dead *node
}

// step is a symbol that is read in a state: a byte, or 256 plus the id of a special
// token.
type step struct {
	from   uint32
	symbol int32
}

// body is the key of a rule's expression inside a number of open brackets.
type body struct{ rule, depth int }

func newAutomaton() *automaton {
	a := &automaton{dead: new(node)}
	a.forget()
	return a
}

// forget clears all tables. If the table of nodes was full before many rows were used, it
// becomes twice as large.
func (a *automaton) forget() {
	if a.rows < maxRows/8 {
		a.maxNodes = max(fewestNodes, 2*a.maxNodes)
	}
	a.nodes = map[identity]*node{}
	a.steps = map[step]*node{}
	a.bodies = map[body]*node{}
	a.masks = map[maskOf]model.TokenSet{}
	a.generation++
	a.rows = 0
}

// take returns the node to which a byte leads from n, or nil if no text of n begins with
// it.
func (a *automaton) take(n *node, b byte) *node {
	if n.row == nil || n.generation != a.generation {
		if len(a.nodes) > a.maxNodes || a.rows > maxRows {
			a.forget()
		}
		n.row, n.generation = new([256]*node), a.generation
		a.rows++
	}
	to := n.row[b]
	if to == nil {
		if to = a.derive(n, int32(b)); to == nil {
			to = a.dead
		}
		alike := ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		a.alike(n, b, &alike)
		for other := range alike.All() {
			n.row[other] = to
		}
	}
	if to == a.dead {
		return nil
	}
	return to
}

// alike keeps in the set those bytes that certainly lead from n to the same node as b
// does. It removes the bytes that are told apart from b by a set or a text with which n
// begins.
func (a *automaton) alike(n *node, b byte, set *ByteSet) {
	switch n.kind {
	case bytesIn:
		set.split(n.set, b)
	case literal:
		set.split(span(n.text[0], n.text[0]), b)
	case except:
		for _, one := range n.without {
			if one != "" {
				set.split(span(one[0], one[0]), b)
			}
		}
	case unclosed:
		set.split(span('<', '<'), b)
		set.split(span('/', '/'), b)
	}
	a.heads(n, func(head *node) { a.alike(head, b, set) })
	if n.kind == both {
		a.alike(n.b, b, set)
	}
}

// derive returns the derivative of n by a symbol: the texts of n that begin with the
// symbol, with that symbol cut off.
func (a *automaton) derive(n *node, symbol int32) *node {
	switch n.kind {
	case empty:
		return nil
	case bytesIn:
		if symbol > 0xff || !n.set.Has(byte(symbol)) {
			return nil
		}
		return a.empty()
	case literal:
		if symbol != int32(n.text[0]) {
			return nil
		}
		return a.literal(n.text[1:])
	case special:
		if symbol != specialSymbol(int32(n.min)) {
			return nil
		}
		return a.empty()
	}
	by := step{n.id, symbol}
	to, known := a.steps[by]
	if !known {
		to = a.deriveCompound(n, symbol)
		a.steps[by] = to
	}
	return to
}

func (a *automaton) deriveCompound(n *node, symbol int32) *node {
	switch n.kind {
	case sequence:
		to := a.pair(a.derive(n.a, symbol), n.b)
		if n.a.nullable {
			to = a.choice(to, a.derive(n.b, symbol))
		}
		return to
	case choice:
		var options []*node
		for _, option := range n.options {
			if to := a.derive(option, symbol); to != nil {
				options = append(options, to)
			}
		}
		return a.choice(options...)
	case repeat:
		to := a.derive(n.a, symbol)
		if to == nil {
			return nil
		}
		most := n.max
		if most != unbounded {
			most--
		}
		return a.pair(to, a.repeat(n.a, max(n.min-1, 0), most))
	case value:
		return a.derive(a.body(n), symbol)
	case except:
		to := a.derive(n.a, symbol)
		if to == nil {
			return nil
		}
		var tails []string
		for _, one := range n.without {
			if one != "" && int32(one[0]) == symbol {
				tails = append(tails, one[1:])
			}
		}
		return a.except(to, tails)
	case both:
		to, _ := a.both(a.derive(n.a, symbol), a.derive(n.b, symbol)) // all states were visited before
		return to
	case other:
		if n.a == nil {
			return n
		}
		return a.other(a.derive(n.a, symbol))
	case unclosed:
		if symbol == '/' && n.min == 0 {
			return nil
		}
		return a.unclosed(a.derive(n.a, symbol), symbol != '<')
	default: // scalar
		return a.scalar(a.derive(n.a, symbol))
	}
}

// body returns the expression of a value's rule.
func (a *automaton) body(n *node) *node {
	of := body{n.min, n.max}
	b, known := a.bodies[of]
	if !known {
		b = a.rules[of.rule].node(a, of.depth)
		a.bodies[of] = b
	}
	return b
}

// first adds to into the bytes with which texts of n begin.
func (a *automaton) first(n *node, into *ByteSet) {
	switch n.kind {
	case bytesIn:
		into.union(n.set)
	case literal:
		into.Add(n.text[0])
	case both:
		for _, b := range a.classes(n) {
			if a.derive(n, int32(b)) != nil {
				alike := ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
				a.alike(n, b, &alike)
				into.union(alike)
			}
		}
	case unclosed:
		var own ByteSet
		a.first(n.a, &own)
		if n.min == 0 {
			own['/'>>6] &^= 1 << ('/' & 63)
		}
		into.union(own)
	default:
		a.heads(n, func(head *node) { a.first(head, into) })
	}
}

// specials calls add with the special tokens with which texts of n begin.
func (a *automaton) specials(n *node, add func(token int32)) {
	if n.kind == special {
		add(int32(n.min))
		return
	}
	a.heads(n, func(head *node) { a.specials(head, add) })
}

// heads calls visit with the parts of n with which its texts may begin.
func (a *automaton) heads(n *node, visit func(*node)) {
	switch n.kind {
	case sequence:
		visit(n.a)
		if n.a.nullable {
			visit(n.b)
		}
	case choice:
		for _, option := range n.options {
			visit(option)
		}
	case repeat, scalar, except, both, unclosed:
		visit(n.a)
	case other:
		if n.a != nil {
			visit(n.a)
		}
	case value:
		visit(a.body(n))
	}
}

func specialSymbol(token int32) int32 { return 256 + token }
