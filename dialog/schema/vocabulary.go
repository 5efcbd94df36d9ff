package schema

import (
	"cmp"
	"slices"
	"sync"
)

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
