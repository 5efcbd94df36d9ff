package native

import "github.com/fulgurite/fulgurite/model/native/memory"

// pagePositions is the number of positions of a page.
const pagePositions = 32

// idlePages is how many numbers the free pages of an idle decoder may hold: 64 MiB.
const idlePages = 16 << 20

// pages lends memory for keys and values in pieces of pagePositions positions,
// for all layers. A piece holds, for each layer and key head, the keys as an
// H×pagePositions matrix and the values as a pagePositions×H one, so that growing
// moves nothing.
type pages struct {
	block int // numbers of one layer's head, keys or values
	heads int
	size  int
	free  []*memory.Floats
}

func newPages(l *layout) pages {
	block := l.h * pagePositions
	return pages{block: block, heads: l.KVHeads, size: 2 * block * l.KVHeads * l.Layers}
}

// reserve adds pages to held until they cover n positions.
func (p *pages) reserve(held []*memory.Floats, n int) []*memory.Floats {
	for len(held)*pagePositions < n {
		if last := len(p.free) - 1; last >= 0 {
			held = append(held, p.free[last])
			p.free = p.free[:last]
			continue
		}
		held = append(held, memory.New(p.size))
	}
	return held
}

func (p *pages) release(held []*memory.Floats) { p.free = append(p.free, held...) }

// trim gives free pages back to the system until they hold at most n numbers.
func (p *pages) trim(n int) {
	for last := len(p.free) - 1; last >= 0 && len(p.free)*p.size > n; last-- {
		p.free[last].Free()
		p.free[last] = nil
		p.free = p.free[:last]
	}
}

// keys and values of a layer's head in one page.
func (p *pages) keys(page []float32, layer, head int) []float32 {
	from := 2 * (layer*p.heads + head) * p.block
	return page[from : from+p.block]
}

func (p *pages) values(page []float32, layer, head int) []float32 {
	from := (2*(layer*p.heads+head) + 1) * p.block
	return page[from : from+p.block]
}
