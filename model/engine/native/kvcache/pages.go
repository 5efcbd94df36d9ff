package kvcache

import "github.com/fulgurite/fulgurite/model/engine/native/memory"

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
