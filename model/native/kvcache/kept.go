package kvcache

import (
	"slices"

	"github.com/fulgurite/fulgurite/model/native/prefix"
)

// Kept are the pages of finished sequences. The least recently used ones are given up
// first.
type Kept struct {
	pages     *Pages
	most      int         // pages
	held      int         // pages, each counted once
	sequences []*sequence // in the order of their tokens, none of them the beginning of another
	uses      int
}

// sequence is tokens and the pages that have their keys and values.
type sequence struct {
	tokens []int32
	pages  []*Page
	used   int // counts uses
}

// NewKept returns an empty store that keeps at most so many of the pages.
func NewKept(pages *Pages, most int) *Kept { return &Kept{pages: pages, most: most} }

// Limit changes how many pages are kept at most.
func (k *Kept) Limit(most int) {
	k.most = most
	k.shrink()
}

// IsEmpty reports whether nothing is kept.
func (k *Kept) IsEmpty() bool { return len(k.sequences) == 0 }

// Clear gives up everything.
func (k *Kept) Clear() {
	for len(k.sequences) > 0 {
		k.drop(len(k.sequences) - 1)
	}
}

// Longest finds the sequence that begins like tokens for the longest. The pages, to be
// shared before the next call, have the keys and values of the first n of tokens.
func (k *Kept) Longest(tokens []int32) (n int, pages []*Page) {
	at := k.search(tokens)
	var best *sequence
	for _, s := range k.sequences[max(0, at-1):min(at+1, len(k.sequences))] { // the order puts it there
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

// Keep takes over pages that were held for tokens.
func (k *Kept) Keep(tokens []int32, held []*Page) {
	n := min(len(tokens), k.most*PagePositions)
	tokens = tokens[:n]
	covered := (n + PagePositions - 1) / PagePositions
	k.pages.Release(held[covered:])
	if n == 0 {
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
	k.shrink()
}

// begins reports whether tokens begin with all of those.
func begins(tokens, with []int32) bool { return prefix.Common(tokens, with) == len(with) }

// search is where tokens are, or would be, in the order of sequences.
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

// shrink drops the least recently used sequences until the pages are few enough.
func (k *Kept) shrink() {
	for k.held > k.most {
		oldest := 0
		for i, s := range k.sequences {
			if s.used < k.sequences[oldest].used {
				oldest = i
			}
		}
		k.drop(oldest)
	}
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
