package schema

import (
	"errors"
	"slices"
	"unicode/utf8"
)

// These limit the time that a schema can take.
const (
	maxStates    = 1 << 13 // of one intersection
	maxAllStates = 1 << 16 // of all intersections of a grammar
)

// errStates is the error of an intersection with more states.
var errStates = errors.New("too much to combine")

// both returns the expression of the texts that are in x and in y, or nil if there are
// none. An intersection may have states from which no text leads to an end. So all of its
// states are visited first, and those are left out.
func (a *automaton) both(x, y *node) (*node, error) {
	n := a.meet(x, y)
	if n == nil || n.kind != both {
		return n, nil
	}
	if !n.visited {
		if err := a.visit(n); err != nil {
			return nil, err
		}
	}
	if !n.live {
		return nil, nil
	}
	return n, nil
}

// meet returns the node of an intersection, without a look at its states.
func (a *automaton) meet(x, y *node) *node {
	switch {
	case x == nil || y == nil:
		return nil
	case x == y || y.kind == other && y.a == nil:
		return x
	case x.kind == other && x.a == nil:
		return y
	}
	if x.id > y.id {
		x, y = y, x
	}
	return a.intern(identity{kind: both, a: x.id, b: y.id}, func() *node {
		return &node{a: x, b: y, nullable: x.nullable && y.nullable}
	})
}

// visit decides for each state of an intersection whether a text leads from it to an end.
func (a *automaton) visit(first *node) error {
	states := []*node{first}
	places := map[*node]int{first: 0}
	var before [][]int // the states that lead to each state
	var ends []int
	open := 0
	for i := 0; i < len(states); i++ {
		if states[i].kind == both {
			open++
			a.visits++
			if open > maxStates || a.visits > maxAllStates && !a.built {
				return errStates
			}
		}
		before = append(before, nil)
		n := states[i]
		switch {
		case n.kind != both || n.visited && n.live || n.nullable:
			ends = append(ends, i)
			if n.kind != both || n.visited {
				continue
			}
		case n.visited:
			continue
		}
		for _, b := range a.classes(n) {
			to := a.meet(a.derive(n.a, int32(b)), a.derive(n.b, int32(b)))
			if to == nil {
				continue
			}
			place, known := places[to]
			if !known {
				place = len(states)
				places[to], states = place, append(states, to)
			}
			for len(before) <= place {
				before = append(before, nil)
			}
			before[place] = append(before[place], i)
		}
	}
	live := make([]bool, len(states))
	for len(ends) > 0 {
		i := ends[len(ends)-1]
		ends = ends[:len(ends)-1]
		if !live[i] {
			live[i] = true
			ends = append(ends, before[i]...)
		}
	}
	for i, n := range states {
		if n.kind == both {
			n.visited, n.live = true, live[i]
		}
	}
	return nil
}

// classes returns one byte of each set of bytes that lead from n to the same node.
func (a *automaton) classes(n *node) []byte {
	var found []byte
	var seen ByteSet
	for b := range 256 {
		if seen.Has(byte(b)) {
			continue
		}
		alike := ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		a.alike(n, byte(b), &alike)
		seen.union(alike)
		found = append(found, byte(b))
	}
	return found
}

// other returns the expression of all texts that are not in n. It is only for one side of
// an intersection, because not all of its states lead to an end.
func (a *automaton) other(n *node) *node {
	i := identity{kind: other}
	if n != nil {
		i.a = n.id
	}
	return a.intern(i, func() *node { return &node{a: n, nullable: n == nil || !n.nullable} })
}

// unclosed returns the expression of the texts of n in which no "</" occurs. slash is
// false if the text before n ends with "<". From each state of n, other bytes than a
// slash have to be possible after "<".
func (a *automaton) unclosed(n *node, slash bool) *node {
	if n == nil || n.kind == empty {
		return n
	}
	i := identity{kind: unclosed, a: n.id}
	if slash {
		i.min = 1
	}
	return a.intern(i, func() *node { return &node{a: n, min: i.min, nullable: n.nullable} })
}

// withoutClosing returns the texts of n in which no "</" occurs, or nil if there are none.
func (a *automaton) withoutClosing(n *node) (*node, error) {
	if n == nil {
		return nil, nil
	}
	character := a.anyRune(bare)
	if n.kind == repeat && n.a == character {
		return a.unclosed(n, true), nil
	}
	return a.each(n, func(n *node) (*node, error) {
		return a.both(n, a.unclosed(a.repeat(character, 0, unbounded), true))
	})
}

// without returns the texts of n that are not in excluded, or nil if there are none. Of
// texts with a large length it leaves out more: all that begin as one that is excluded.
func (a *automaton) without(n, excluded *node) (*node, error) {
	return a.each(n, func(n *node) (*node, error) {
		left, err := a.both(n, a.other(excluded))
		if err == nil || n.kind != unclosed || n.a.kind != repeat || n.a.a != a.anyRune(bare) {
			return left, err
		}
		var begin ByteSet
		a.first(excluded, &begin)
		var others []rune
		for r := rune(0); r < utf8.RuneSelf; r++ {
			if !begin.Has(byte(r)) {
				others = append(others, r, r)
			}
		}
		first := a.runes(append(others, utf8.RuneSelf, utf8.MaxRune), bare)
		least, most := n.a.min, n.a.max
		if most != unbounded {
			most--
		}
		after := a.sequence(first, a.repeat(n.a.a, max(least-1, 0), most))
		if least == 0 {
			after = a.optional(after)
		}
		return a.unclosed(after, true), nil
	})
}

// each returns the choice of what do makes of each option of n.
func (a *automaton) each(n *node, do func(*node) (*node, error)) (*node, error) {
	if n == nil {
		return nil, nil
	}
	options := []*node{n}
	if n.kind == choice {
		options = slices.Clone(n.options)
	}
	for i := range options {
		var err error
		if options[i], err = do(options[i]); err != nil {
			return nil, err
		}
	}
	return a.choice(options...), nil
}
