package schema

import (
	"cmp"
	"slices"
	"sync"
)

// longToken is the least number of bytes of a long token. The short tokens that may come
// within a string are nearly the same for all strings, so they are kept.
const longToken = 16

// mostKept is how many states of strings a vocabulary keeps the tokens of, 19 KiB
// each with 150,000 tokens.
const mostKept = 1 << 8

// Vocabulary is the tokens of a codec as bytes. It is safe for concurrent use; one
// that serves many grammars gets faster with them.
type Vocabulary struct {
	bytes       [][]byte
	short, long tree

	mu   sync.Mutex
	kept map[likeness]inside
}

// tree is the bytes of tokens: each branch before those that go on from it, so that
// a walk reads it from front to end.
type tree struct {
	branches []branch
	deepest  int
}

// branch is one byte on the way to tokens.
type branch struct {
	byte   byte
	depth  int32   // of bytes with this one
	next   int32   // the first branch that does not go on from this one
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

// Size is the number of tokens.
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

// end ends branches: what is added from now on is beside them.
func (t *tree) end(open []int32) {
	for _, i := range open {
		t.branches[i].next = int32(len(t.branches))
	}
}
