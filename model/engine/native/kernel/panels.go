package kernel

import "github.com/fulgurite/fulgurite/model/half"

// QuantBlock is how many numbers of a row of weights share a factor in Panels.Q8.
const QuantBlock = half.QuantBlock

// Panels is the matrix W of a linear layer, [n, k], packed as by PackRows, in one of
// three forms. A product with it uses exactly the float32 value of each number, so the
// form changes no bit of the product.
type Panels struct {
	F32  []float32
	BF16 []uint16 // the upper halves of float32
	// Q8 holds integers of eight bits, to be multiplied by Factors: one factor for
	// QuantBlock numbers of a row, as in blocks of GGUF's Q8_0. Factors are packed as the
	// matrix [n, k/QuantBlock] would be. k is a multiple of QuantBlock.
	Q8      []int8
	Factors []float32
}

// From returns the rest of p from number at on; a panel must begin there.
func (p Panels) From(at int) Panels {
	switch {
	case p.BF16 != nil:
		return Panels{BF16: p.BF16[at:]}
	case p.Q8 != nil:
		return Panels{Q8: p.Q8[at:], Factors: p.Factors[at/QuantBlock:]}
	}
	return Panels{F32: p.F32[at:]}
}

// Number returns the number at index at. Its factor, in a form that has factors, is at
// index factor.
func (p Panels) Number(at, factor int) float32 {
	switch {
	case p.BF16 != nil:
		return half.FromBF16(p.BF16[at])
	case p.Q8 != nil:
		return float32(p.Q8[at]) * p.Factors[factor]
	}
	return p.F32[at]
}

// Put writes x, at most QuantBlock numbers of a row, to index at and to those that follow
// it in distances of step. It rounds them to p's form: to the nearest BF16, or as
// half.Quantize does.
func (p Panels) Put(at, step, factor int, x []float32) {
	switch {
	case p.BF16 != nil:
		for i, v := range x {
			p.BF16[at+i*step] = half.ToBF16(v)
		}
	case p.Q8 != nil:
		var block [QuantBlock]int8
		p.Factors[factor] = half.Quantize(&block, x)
		for i := range x {
			p.Q8[at+i*step] = block[i]
		}
	default:
		for i, v := range x {
			p.F32[at+i*step] = v
		}
	}
}

// MatMulPanels computes what MatMulPacked computes, with B in any form.
func (s *Set) MatMulPanels(c []float32, cRow int, a []float32, aRow int, b Panels, m, n, k int, add bool) {
	if b.F32 != nil {
		s.MatMulPacked(c, cRow, a, aRow, b.F32, m, n, k, add)
		return
	}
	if m == 0 || n == 0 {
		return
	}
	if k == 0 || n%Lanes != 0 || b.Q8 != nil && k%QuantBlock != 0 {
		panic("kernel: panels of odd sizes")
	}
	_, _ = c[(m-1)*cRow+n-1], a[(m-1)*aRow+k-1]
	for j := 0; j < n; j += PanelWidth {
		width := min(PanelWidth, n-j)
		if b.BF16 != nil {
			s.panelBF16(c[j:], cRow, a, aRow, b.BF16[j*k:(j+width)*k], m, width, k, add)
		} else {
			s.panelQ8(c[j:], cRow, a, aRow, b.Q8[j*k:(j+width)*k], b.Factors[j*k/QuantBlock:(j+width)*k/QuantBlock], m, width, k, add)
		}
	}
}

func (s *Set) panelBF16(c []float32, cRow int, a []float32, aRow int, b []uint16, m, width, k int, add bool) {
	s.eachTile(m, width, func(t, i, j int, wide bool) {
		tile := s.narrowBF16[t]
		if wide {
			tile = s.wideBF16[t]
		}
		tile(&c[i*cRow+j], 4*cRow, &a[i*aRow], 4*aRow, 4, &b[j], 2*width, k, bit(add))
	})
}

func (s *Set) panelQ8(c []float32, cRow int, a []float32, aRow int, b []int8, factors []float32, m, width, k int, add bool) {
	s.eachTile(m, width, func(t, i, j int, wide bool) {
		tile := s.narrowQ8[t]
		if wide {
			tile = s.wideQ8[t]
		}
		tile(&c[i*cRow+j], 4*cRow, &a[i*aRow], 4*aRow, 4, &b[j], width, k/QuantBlock, bit(add), &factors[j])
	})
}

// eachTile calls do for the tiles that MatMul would use for m rows of a panel. A tile is
// tileRows[t] high and begins at row i and column j.
func (s *Set) eachTile(m, width int, do func(t, i, j int, wide bool)) {
	for j := 0; j < width; {
		tiles, columns := &s.narrow, Lanes
		if width-j >= PanelWidth && s.wide[len(s.wide)-1] != nil {
			tiles, columns = &s.wide, PanelWidth
		}
		for i, t := 0, 0; i < m; {
			for tileRows[t] > m-i || tiles[t] == nil {
				t++
			}
			do(t, i, j, columns == PanelWidth)
			i += tileRows[t]
		}
		j += columns
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// RowsBuffer is how many numbers the buffer of MatMulPanelsRows must hold.
const RowsBuffer = BlockDepth*PanelWidth + PanelWidth*PanelWidth

// MatMulPanelsRows computes what MatMulPackedRows computes, with W in any form; buffer
// has room for RowsBuffer numbers. If W is in Q8, n is a multiple of QuantBlock.
func (s *Set) MatMulPanelsRows(c []float32, cRow int, a []float32, aRow int, w Panels, m, n, k, first, last int, buffer []float32) {
	if w.F32 != nil {
		s.MatMulPackedRows(c, cRow, a, aRow, w.F32, m, n, k, first, last, buffer)
		return
	}
	wide := buffer[BlockDepth*PanelWidth : RowsBuffer]
	for p := 0; p < k; p += BlockDepth {
		depth := min(BlockDepth, k-p)
		for j := first; j < last; j += PanelWidth {
			width := min(PanelWidth, n-j)
			for q := p; q < p+depth; q += PanelWidth {
				rows := min(PanelWidth, k-q) // a panel holds so many rows of W
				s.widen(wide[:width*rows], w.From(q*n+j*rows), rows)
				s.Transpose(buffer[(q-p)*width:], width, wide, rows, width, rows)
			}
			s.MatMul(c[j:], cRow, a[p:], aRow, 1, buffer, width, m, width, depth, p > 0)
		}
	}
}

// widen sets to to the first numbers of p, a block of a panel of so many rows.
func (s *Set) widen(to []float32, p Panels, rows int) {
	if p.BF16 != nil {
		_ = p.BF16[len(to)-1]
		s.widenBF16(&to[0], &p.BF16[0], len(to)/Lanes)
		return
	}
	_, _, _ = p.Q8[len(to)-1], p.Factors[rows-1], to[QuantBlock*rows-1]
	s.widenQ8(&to[0], &p.Q8[0], &p.Factors[0], rows/Lanes)
}
