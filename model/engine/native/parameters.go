package native

import (
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
)

// parameters holds a model's weights, each once. Vectors, and an embedding that is not
// also the head, lie as the layout says. Each matrix that products use is packed by
// kernel.PackRows, at the matrix's offset.
type parameters struct {
	*layout
	// weights holds all numbers in float32. For a base that is held in fewer bits it
	// holds only the vectors; vectors maps the offset of each to its index in weights.
	weights []float32
	vectors map[int]int
	panels  kernel.Panels  // the matrices and the embedding, at their offsets
	tied    bool           // the embedding is also the head, and packed
	held    *memory.Floats // the memory of all of it; nil if it belongs to another owner
}

// newParameters copies w, which matches the architecture.
func newParameters(l *layout, w model.Weights) *parameters {
	p := zeroParameters(l, model.F32)
	for i, s := range l.tensors {
		p.put(s, w[i].Data)
	}
	return p
}

// zeroParameters returns zero weights whose matrices are held in the given precision.
func zeroParameters(l *layout, precision model.Precision) *parameters {
	held := memory.New(parts(l, precision).numbers())
	p := parametersIn(held.Data(), l, precision)
	p.held = held
	return p
}

// heldParts holds the sizes of the three consecutive parts of the memory of weights, each
// counted in float32.
type heldParts struct{ vectors, factors, matrices int }

func (h heldParts) numbers() int { return h.vectors + h.factors + h.matrices }

// parts returns how many numbers weights take whose matrices are held in a precision. In
// float32 the vectors lie among the matrices.
func parts(l *layout, precision model.Precision) (h heldParts) {
	if precision == model.F32 {
		return heldParts{matrices: l.size}
	}
	for _, s := range l.tensors {
		if !s.decays { // of rank 1
			h.vectors += s.size
		}
	}
	h.matrices = (l.size + 1) / 2
	if precision != model.BF16 {
		h.factors, h.matrices = l.size/kernel.QuantBlock+1, (l.size+3)/4
	}
	return h
}

// parametersIn returns weights that lie in numbers, which belongs to the caller.
func parametersIn(numbers []float32, l *layout, precision model.Precision) *parameters {
	p := &parameters{layout: l, tied: l.head.offset == l.embed}
	if precision == model.F32 {
		p.weights, p.panels.F32 = numbers, numbers
		return p
	}
	p.vectors = map[int]int{}
	next := 0
	for _, s := range l.tensors {
		if !s.decays {
			p.vectors[s.offset] = next
			next += s.size
		}
	}
	h := parts(l, precision)
	p.weights = numbers[:h.vectors]
	matrices := numbers[h.vectors+h.factors:]
	if precision == model.BF16 {
		p.panels.BF16 = memory.Halves(matrices)
		return p
	}
	p.panels.Factors = numbers[h.vectors : h.vectors+h.factors]
	p.panels.Q8 = memory.Quarters(matrices)
	return p
}

// put sets the numbers of a tensor, rounded to the form in which they are held.
func (p *parameters) put(s tensorSpan, numbers []float32) {
	switch {
	case p.vectors == nil:
		p.eachPiece(s, func(at, step int, cols []int, element int) {
			from := numbers[element : element+len(cols)]
			for j, col := range cols {
				p.weights[at+col*step] = from[j]
			}
		})
	case s.decays:
		p.putMatrix(s, numbers)
	default:
		to := p.weights[p.vectors[s.offset]:]
		for j, col := range s.cols {
			to[col] = numbers[j]
		}
	}
}

// putMatrix sets a matrix in blocks of rows and columns, so that what it writes stays in
// the first-level cache.
func (p *parameters) putMatrix(s tensorSpan, numbers []float32) {
	dense := isStraight(s.cols)
	m, packed := p.matrixAt(s.offset)
	if !packed {
		m = matrix{s.offset, len(s.rows), s.stride}
	}
	before := (s.offset - m.offset) / m.in // rows of other tensors
	for first := 0; first < len(s.rows); first += kernel.PanelWidth {
		rows := s.rows[first:min(first+kernel.PanelWidth, len(s.rows))]
		for from := 0; from < len(s.cols); from += kernel.QuantBlock {
			to := min(from+kernel.QuantBlock, len(s.cols))
			for i, row := range rows {
				x := numbers[(first+i)*len(s.cols)+from : (first+i)*len(s.cols)+to]
				at, step, factor := m.place(packed, before+row, from)
				if dense {
					p.panels.Put(at+from*step, step, factor, x)
					continue
				}
				for j, col := range s.cols[from:to] { // never in eight bits
					p.panels.Put(at+col*step, step, factor, x[j:j+1])
				}
			}
		}
	}
}

// place returns where a row of a matrix lies: its first number at index at, each further
// number step later. If columns have factors, the factor of column col is at index
// factor.
func (m matrix) place(packed bool, row, col int) (at, step, factor int) {
	if !packed {
		at = m.offset + row*m.in
		return at, 1, (at + col) / kernel.QuantBlock
	}
	at, step = m.row(row)
	panel := row / kernel.PanelWidth * kernel.PanelWidth
	return at, step, (m.offset+panel*m.in)/kernel.QuantBlock + col/kernel.QuantBlock*step + row - panel
}

// free gives the memory back. The weights must not be used after it.
func (p *parameters) free() {
	p.weights, p.panels = nil, kernel.Panels{}
	p.held.Free()
}

// eachPiece calls do for short pieces of all rows of a tensor. The tensor's elements from
// number element on lie at at + col·step, one for each of cols. Pieces of rows that are
// packed together follow one another.
func (l *layout) eachPiece(s tensorSpan, do func(at, step int, cols []int, element int)) {
	m, packed := l.matrixAt(s.offset)
	for first := 0; first < len(s.rows); first += kernel.PanelWidth {
		rows := s.rows[first:min(first+kernel.PanelWidth, len(s.rows))]
		for from := 0; from < len(s.cols); from += kernel.Lanes {
			cols := s.cols[from:min(from+kernel.Lanes, len(s.cols))]
			for i, row := range rows {
				at, step := s.offset+row*s.stride, 1
				if packed {
					at, step = m.row((s.offset-m.offset)/m.in + row)
				}
				do(at, step, cols, (first+i)*len(s.cols)+from)
			}
		}
	}
}

// matrixAt returns the matrix that an offset belongs to. It returns false if products use
// no such matrix.
func (l *layout) matrixAt(offset int) (matrix, bool) {
	for _, m := range l.matrices() {
		if offset >= m.offset && offset < m.offset+m.out*m.in {
			return m, true
		}
	}
	return matrix{}, false
}

// row returns where a row of a packed matrix lies: its first number at index at, each
// further number step later.
func (m matrix) row(i int) (at, step int) {
	panel := i / kernel.PanelWidth * kernel.PanelWidth
	return m.offset + panel*m.in + i - panel, min(kernel.PanelWidth, m.out-panel)
}

// matrices returns the matrices that products use.
func (l *layout) matrices() []matrix {
	var all []matrix
	for _, at := range l.layers {
		all = append(all, at.qkv, at.out, at.gateUp, at.down)
	}
	return append(all, l.head)
}

// vectorAt returns the n numbers of the vector at offset.
func (p *parameters) vectorAt(offset, n int) []float32 {
	if p.vectors != nil {
		offset = p.vectors[offset]
	}
	return p.weights[offset : offset+n]
}

// embedToken sets to to the embedding of a token.
func (p *parameters) embedToken(to []float32, token int32) {
	if p.vectors == nil && !p.tied {
		copy(to, p.weights[p.embed+int(token)*p.d:][:p.d])
		return
	}
	m := matrix{p.embed, kernel.Pad(p.VocabSize), p.d}
	for first := 0; first < p.d; first += kernel.QuantBlock {
		at, step, factor := m.place(p.tied, int(token), first)
		for i := first; i < min(first+kernel.QuantBlock, p.d); i++ {
			to[i] = p.panels.Number(at+i*step, factor)
		}
	}
}
