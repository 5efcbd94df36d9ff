package kvcache

import (
	"slices"

	"github.com/fulgurite/fulgurite/model/engine/native/prefix"
)

// Kept holds the pages of finished sequences. When a page is needed and none is free, it
// drops sequences, the least recently used first, while more pages are kept than may
// stay. So memory grows by at most the pages that may stay above the most that requests
// ever held at the same time.
type Kept struct {
	pages     *Pages
	stay      int         // pages
	held      int         // pages, each counted once
	sequences []*sequence // in the order of their tokens, none of them the beginning of another
	uses      int
}

// sequence holds tokens and the pages with their keys and values.
type sequence struct {
	tokens []int32
	pages  []*Page
	used   int // value of Kept.uses when it was last used
}

// NewKept returns an empty store of pages. Up to stay kept pages remain even if other
// sequences need pages.
func NewKept(pages *Pages, stay int) *Kept {
	k := &Kept{pages: pages, stay: stay}
	pages.kept = k
	return k
}

// IsEmpty reports whether nothing is kept.
func (k *Kept) IsEmpty() bool { return len(k.sequences) == 0 }

// Clear gives up everything.
func (k *Kept) Clear() {
	for len(k.sequences) > 0 {
		k.drop(len(k.sequences) - 1)
	}
}

// Shrink gives up sequences until no more pages are kept than may stay.
func (k *Kept) Shrink() {
	for k.held > k.stay {
		k.dropOldest()
	}
}

// Longest finds the sequence that has the longest prefix in common with tokens. The pages
// that it returns hold the keys and values of the first n of tokens. The caller must
// share them before the next call.
func (k *Kept) Longest(tokens []int32) (n int, pages []*Page) {
	at := k.search(tokens)
	var best *sequence
	for _, s := range k.sequences[max(0, at-1):min(at+1, len(k.sequences))] { // only neighbours in the order can have the longest prefix
		if common := prefix.Common(s.tokens, tokens); common > n {
			n, best = common, s
		}
	}
	if best == nil {
		return 0, nil
	}
	k.use(best)
	return n, best.pages
}

// Keep takes over the pages that a finished sequence held for tokens.
func (k *Kept) Keep(tokens []int32, held []*Page) {
	covered := (len(tokens) + PagePositions - 1) / PagePositions
	k.pages.Release(held[covered:])
	if len(tokens) == 0 {
		return
	}
	held = held[:covered]
	at := k.search(tokens)
	if at < len(k.sequences) && begins(k.sequences[at].tokens, tokens) {
		k.use(k.sequences[at])
		k.pages.Release(held)
		return
	}
	if at > 0 && begins(tokens, k.sequences[at-1].tokens) {
		at--
		k.drop(at)
	}
	s := &sequence{tokens: tokens, pages: held}
	for _, page := range held {
		if page.kept++; page.kept == 1 {
			k.held++
		}
	}
	k.use(s)
	k.sequences = slices.Insert(k.sequences, at, s)
}

// begins reports whether tokens begins with all of with.
func begins(tokens, with []int32) bool { return prefix.Common(tokens, with) == len(with) }

// search returns the index at which tokens is, or would be, in the order of sequences.
func (k *Kept) search(tokens []int32) int {
	at, _ := slices.BinarySearchFunc(k.sequences, tokens, func(s *sequence, tokens []int32) int {
		return slices.Compare(s.tokens, tokens)
	})
	return at
}

func (k *Kept) use(s *sequence) {
	k.uses++
	s.used = k.uses
}

// dropOldest drops the least recently used sequence.
func (k *Kept) dropOldest() {
	oldest := 0
	for i, s := range k.sequences {
		if s.used < k.sequences[oldest].used {
			oldest = i
		}
	}
	k.drop(oldest)
}

func (k *Kept) drop(at int) {
	s := k.sequences[at]
	k.sequences = slices.Delete(k.sequences, at, at+1)
	for _, page := range s.pages {
		if page.kept--; page.kept == 0 {
			k.held--
		}
	}
	k.pages.Release(s.pages)
}
