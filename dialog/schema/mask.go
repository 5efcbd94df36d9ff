package schema

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/model"
)

// maskOf is the key of a set of tokens: the vocabulary, and the state in which they may
// come.
type maskOf struct {
	v    *Vocabulary
	from uint32
}

// inside has the short tokens with which a scalar may continue, whatever follows the
// scalar.
type inside struct {
	tokens model.TokenSet
	exits  []int32 // branches after which the scalar may be complete
}

// mask returns the tokens that may be taken in a state.
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
	if len(a.masks) >= maxMasks {
		clear(a.masks)
	}
	a.masks[of] = set
	return set
}

// inside returns the short tokens of a string. It computes them once for all strings that
// short tokens can't tell apart. Masks of strings take the most time, because most tokens
// are allowed in them.
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
	if len(v.kept) >= maxKept {
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
	at  []*node // the state at each depth
}

func newWalk(a *automaton, t *tree, set model.TokenSet) *walk {
	return &walk{a, t, set, make([]*node, t.deepest+1)}
}

// from adds the tokens of which all bytes can be taken from state n. The walk is in state
// n after the branch after, or at the root if after is -1. It returns the branches at
// which n may come to its end.
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

// behind adds the tokens that end the scalar at one of its exits and continue with rest.
func (w *walk) behind(exits []int32, rest *node) {
	for _, exit := range exits {
		w.from(rest, exit)
	}
}

// Constraint holds a reply to a grammar token by token. It implements
// model.Constraint.
type Constraint struct {
	v *Vocabulary
	m Matcher
}

// NewConstraint returns a constraint at the beginning of a reply. The reply ends when the
// grammar allows nothing more.
func NewConstraint(g *Grammar, v *Vocabulary) *Constraint { return &Constraint{v, g.Matcher()} }

// Allowed implements model.Constraint. After a token that was not allowed, no token is.
func (c *Constraint) Allowed(set model.TokenSet) bool {
	if c.m.at != nil {
		c.m.a.mu.Lock()
		defer c.m.a.mu.Unlock()
		copy(set, c.m.a.mask(c.v, c.m.at))
	}
	return true
}

// Accept implements model.Constraint.
func (c *Constraint) Accept(token int32) (done bool) {
	switch {
	case token < 0 || int(token) >= c.v.Size():
		c.m.at = nil
	case len(c.v.bytes[token]) == 0:
		c.m.StepSpecial(token)
	default:
		for _, b := range c.v.bytes[token] {
			c.m.Step(b)
		}
	}
	return c.m.Final()
}

// Clone returns an independent constraint that continues the same reply.
func (c *Constraint) Clone() *Constraint {
	clone := *c
	return &clone
}

// likeness is the same for expressions, also of different grammars, that short tokens
// can't tell apart. For example, a limit of repeats that is larger than a short token can
// reach makes no difference.
type likeness [sha256.Size]byte

func (n *node) likeness() *likeness {
	if n.alike == nil {
		l := likeness(sha256.Sum256(n.describe((*node).likeness, longToken)))
		n.alike = &l
	}
	return n.alike
}

// exactly is the same for expressions of the same form only. It describes the parts of an
// intersection: which of its texts lead to an end can depend on all of the parts.
func (n *node) exactly() *likeness {
	if n.exact == nil {
		l := likeness(sha256.Sum256(n.describe((*node).exactly, math.MaxUint)))
		n.exact = &l
	}
	return n.exact
}

// describe returns a description of n, with counts up to most, of which part describes the
// parts.
func (n *node) describe(part func(*node) *likeness, most uint) []byte {
	text := []byte{byte(n.kind)}
	switch n.kind {
	case bytesIn:
		for _, word := range n.set {
			text = binary.LittleEndian.AppendUint64(text, word)
		}
	case literal, except:
		text = append(text, n.text...)
	case special:
		text = binary.AppendVarint(text, int64(n.min))
	case value:
		panic("a value is not part of a string") // its rule has a meaning in one grammar only
	case repeat:
		text = binary.AppendUvarint(text, uint64(min(uint(n.min), most)))
		text = binary.AppendUvarint(text, uint64(min(uint(n.max), most))) // unbounded is the largest of all
	case unclosed:
		text = append(text, byte(n.min))
	case both, other:
		part = (*node).exactly
	}
	var parts [][]byte
	for _, option := range n.options {
		parts = append(parts, part(option)[:])
	}
	slices.SortFunc(parts, bytes.Compare)
	for _, of := range []*node{n.a, n.b} {
		if of != nil {
			parts = append(parts, part(of)[:])
		}
	}
	return append(text, bytes.Join(parts, nil)...)
}

// longToken is the number of bytes from which on a token counts as long. The short tokens
// that may come within a string are nearly the same for all strings, so they are kept.
const longToken = 16

// maxKept is for how many states of strings a vocabulary keeps the allowed tokens. With
// 150,000 tokens each takes 19 KiB.
const maxKept = 1 << 8

// Vocabulary holds the tokens of a codec as bytes. It is safe for concurrent use. One
// Vocabulary for many grammars is faster than one for each, because it keeps results.
type Vocabulary struct {
	bytes       [][]byte
	short, long tree

	mu   sync.Mutex
	kept map[likeness]inside
}

// tree holds the bytes of tokens as a prefix tree. Each branch comes before those that
// continue it, so that a walk reads the branches from front to end.
type tree struct {
	branches []branch
	deepest  int
}

// branch is one byte of a path in a tree.
type branch struct {
	byte   byte
	depth  int32   // number of bytes up to and with this one
	next   int32   // the first branch after this one that does not continue it
	tokens []int32 // that end here
}

// NewVocabulary makes the vocabulary whose token i is bytes[i]. A token without
// bytes is special: only Builder.Special lets it in.
func NewVocabulary(bytes [][]byte) *Vocabulary {
	v := &Vocabulary{bytes: bytes, kept: map[likeness]inside{}}
	var short, long []int32
	for id, b := range bytes {
		switch {
		case len(b) >= longToken:
			long = append(long, int32(id))
		case len(b) > 0:
			short = append(short, int32(id))
		}
	}
	v.short, v.long = newTree(bytes, short), newTree(bytes, long)
	return v
}

// Size returns the number of tokens.
func (v *Vocabulary) Size() int { return len(v.bytes) }

func newTree(bytes [][]byte, tokens []int32) tree {
	slices.SortFunc(tokens, func(x, y int32) int {
		return cmp.Or(slices.Compare(bytes[x], bytes[y]), cmp.Compare(x, y))
	})
	var t tree
	var open []int32 // the branches of the token before
	for i, id := range tokens {
		own := bytes[id]
		shared := 0
		for shared < len(open) && shared < len(own) && t.branches[open[shared]].byte == own[shared] {
			shared++
		}
		t.end(open[shared:])
		open = open[:shared]
		for _, b := range own[shared:] {
			open = append(open, int32(len(t.branches)))
			t.branches = append(t.branches, branch{byte: b, depth: int32(len(open))})
		}
		last := &t.branches[open[len(open)-1]]
		last.tokens = tokens[i-len(last.tokens) : i+1]
		t.deepest = max(t.deepest, len(open))
	}
	t.end(open)
	return t
}

// end ends branches: branches that are added later do not continue them.
func (t *tree) end(open []int32) {
	for _, i := range open {
		t.branches[i].next = int32(len(t.branches))
	}
}
