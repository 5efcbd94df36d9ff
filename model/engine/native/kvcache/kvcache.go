// Package kvcache holds the keys and values of a decoder's requests in pages. It also
// keeps those of finished sequences for as long as there is room, so that a prefix that
// sequences have in common is computed once.
//
// A full page may have several holders and is not written to any more. A sequence that
// continues a page which is not full gets a copy of it. Caching changes no bit: the keys
// and values of a position are a function of the weights and of the tokens up to it. So a
// cache serves only one version.
//
// It computes nothing and is not safe for concurrent use: the owner of a decoder's batch
// calls it, and threads only read and write the numbers of pages that their request holds.
package kvcache

import (
	"slices"

	"github.com/fulgurite/fulgurite/model/engine/native/memory"
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

// PagePositions is the number of positions of a page.
const PagePositions = 32

// Shape describes what a page holds: for each layer and key head, the keys as a
// HeadSize×PagePositions matrix and the values as a PagePositions×HeadSize matrix. Adding
// positions therefore moves no numbers.
type Shape struct {
	Layers, Heads, HeadSize int // Heads counts key heads; HeadSize includes padding
}

// Numbers returns how many numbers a page holds.
func (s Shape) Numbers() int { return 2 * s.Layers * s.Heads * s.block() }

// block returns how many numbers the keys, or the values, of one layer's head take in a
// page.
func (s Shape) block() int { return s.HeadSize * PagePositions }

// Keys returns the keys of a layer's head within the numbers of a page.
func (s Shape) Keys(page []float32, layer, head int) []float32 {
	from := 2 * (layer*s.Heads + head) * s.block()
	return page[from : from+s.block()]
}

// Values returns the values of a layer's head within the numbers of a page.
func (s Shape) Values(page []float32, layer, head int) []float32 {
	from := (2*(layer*s.Heads+head) + 1) * s.block()
	return page[from : from+s.block()]
}

// Page is memory for the keys and values of PagePositions positions, in all layers.
type Page struct {
	*memory.Floats
	holders int // requests and kept sequences
	kept    int // kept sequences among the holders
}

// Pages lends pages.
type Pages struct {
	Shape
	free []*Page
	kept *Kept // may be nil
}

// Reserve adds pages to held until they cover n positions.
func (p *Pages) Reserve(held []*Page, n int) []*Page {
	for len(held)*PagePositions < n {
		held = append(held, p.take())
	}
	return held
}

// take lends a page: a free one, if there is one. Its numbers are arbitrary.
func (p *Pages) take() *Page {
	for k := p.kept; k != nil && len(p.free) == 0 && k.held > k.stay; {
		k.dropOldest()
	}
	last := len(p.free) - 1
	if last < 0 {
		return &Page{Floats: memory.New(p.Numbers()), holders: 1}
	}
	page := p.free[last]
	p.free[last] = nil
	p.free = p.free[:last]
	page.holders = 1
	return page
}

// Share returns pages with the first n positions of from. Pages that these positions fill
// are shared; the positions of the last, partly filled page are copied. To get a page for
// the copy, Share may drop the kept sequence that from belongs to. Its numbers stay
// valid: a free page keeps them until it is lent, and it may be lent as the copy itself.
func (p *Pages) Share(from []*Page, n int) []*Page {
	held := make([]*Page, n/PagePositions, (n+PagePositions-1)/PagePositions+1)
	copy(held, from)
	for _, page := range held {
		page.holders++
	}
	if n%PagePositions > 0 {
		page := p.take()
		copy(page.Data(), from[len(held)].Data())
		held = append(held, page)
	}
	return held
}

// Release takes pages back. Pages without any holder become free.
func (p *Pages) Release(held []*Page) {
	for _, page := range held {
		if page.holders--; page.holders == 0 {
			p.free = append(p.free, page)
		}
	}
}

// Trim gives free pages back to the system until they hold at most n numbers.
func (p *Pages) Trim(n int) {
	for last := len(p.free) - 1; last >= 0 && len(p.free)*p.Numbers() > n; last-- {
		p.free[last].Free()
		p.free[last] = nil
		p.free = p.free[:last]
	}
}
