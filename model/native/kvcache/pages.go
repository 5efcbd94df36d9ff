package kvcache

import "github.com/fulgurite/fulgurite/model/native/memory"

// PagePositions is the number of positions of a page.
const PagePositions = 32

// Shape says what a page holds: for each layer and key head, the keys as a
// HeadSize×PagePositions matrix and the values as a PagePositions×HeadSize one, so that
// growing moves nothing.
type Shape struct {
	Layers, Heads, HeadSize int // heads of keys, their size with its padding
}

// Numbers of a page.
func (s Shape) Numbers() int { return 2 * s.Layers * s.Heads * s.block() }

// block is the numbers of one layer's head, keys or values.
func (s Shape) block() int { return s.HeadSize * PagePositions }

// Keys of a layer's head in the numbers of a page.
func (s Shape) Keys(page []float32, layer, head int) []float32 {
	from := 2 * (layer*s.Heads + head) * s.block()
	return page[from : from+s.block()]
}

// Values of a layer's head in the numbers of a page.
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

// take lends a page, a free one first. Its numbers are arbitrary.
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

// Share returns pages with the first n positions of from: those that the positions fill
// are the same, the rest of the positions is in a copy. To make it, what from belongs to
// may be given up: its numbers remain until its page is lent, if not as the copy itself.
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

// Release takes pages back. Those that nobody holds any more are free.
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
