package schema

import "github.com/fulgurite/fulgurite/model"

// maskOf names what a set of tokens was worked out for.
type maskOf struct {
	v    *Vocabulary
	from uint32
}

// inside is the short tokens that a scalar may go on with, whatever follows it.
type inside struct {
	tokens model.TokenSet
	exits  []int32 // branches behind which the scalar may be over
}

// mask is the tokens that may be taken in a state.
func (a *automaton) mask(v *Vocabulary, from *node) model.TokenSet {
	of := maskOf{v, from.id}
	if known, done := a.masks[of]; done {
		return known
	}
	set := model.NewTokenSet(v.Size())
	if from.kind == sequence && from.a.kind == scalar && !from.a.nullable {
		in := a.inside(v, from.a)
		copy(set, in.tokens)
		newWalk(a, &v.short, set).behind(in.exits, from.b)
		long := newWalk(a, &v.long, set)
		long.behind(long.from(from.a, -1), from.b)
	} else {
		newWalk(a, &v.short, set).from(from, -1)
		newWalk(a, &v.long, set).from(from, -1)
	}
	a.specials(from, func(token int32) {
		if int(token) < v.Size() {
			set.Add(token)
		}
	})
	if len(a.masks) >= mostMasks {
		clear(a.masks)
	}
	a.masks[of] = set
	return set
}

// inside is worked out once for all strings that are alike as far as short tokens
// can tell. Strings are the dear states: most tokens are allowed in them.
func (a *automaton) inside(v *Vocabulary, n *node) inside {
	v.mu.Lock()
	in, known := v.kept[*n.likeness()]
	v.mu.Unlock()
	if known {
		return in
	}
	in = inside{tokens: model.NewTokenSet(v.Size())}
	in.exits = newWalk(a, &v.short, in.tokens).from(n, -1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.kept) >= mostKept {
		clear(v.kept)
	}
	v.kept[*n.likeness()] = in
	return in
}

// walk goes through the branches of a tree.
type walk struct {
	a   *automaton
	t   *tree
	set model.TokenSet
	at  []*node // by depth
}

func newWalk(a *automaton, t *tree, set model.TokenSet) *walk {
	return &walk{a, t, set, make([]*node, t.deepest+1)}
}

// from adds the tokens that can be taken whole in state n, reached by branch after,
// or with -1 by no byte. It returns the branches by which n may come to its end.
func (w *walk) from(n *node, after int32) (exits []int32) {
	depth, end := int32(0), int32(len(w.t.branches))
	if after >= 0 {
		depth, end = w.t.branches[after].depth, w.t.branches[after].next
	}
	w.at[depth] = n
	for i := after + 1; i < end; {
		b := &w.t.branches[i]
		to := w.a.take(w.at[b.depth-1], b.byte)
		if to == nil {
			i = b.next
			continue
		}
		w.at[b.depth] = to
		for _, token := range b.tokens {
			w.set.Add(token)
		}
		if to.nullable {
			exits = append(exits, i)
		}
		i++
	}
	return exits
}

// behind adds the tokens that go on with rest behind the exits of what was before.
func (w *walk) behind(exits []int32, rest *node) {
	for _, exit := range exits {
		w.from(rest, exit)
	}
}
