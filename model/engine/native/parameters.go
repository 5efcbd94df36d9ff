package native

import (
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
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

// placement says where padded tensors lie in one flat slice. Padding is zero and stays
// zero.
type placement struct {
	size    int          // numbers in all
	tensors []tensorSpan // in the order of the tensors
}

// layout says where an architecture's tensors lie.
type layout struct {
	model.Architecture
	placement
	d, f, h, v int // padded hidden size, feed-forward size, head and width of the output
	q, o       int // size of all heads of a position, and of its query heads
	group      int // query heads that share a key head
	scale      float32
	epsilon    float32
	embed      int // offsets
	norm       int
	head       matrix // lies at embed where embeddings are tied
	valueBias  int    // of a critic
	layers     []layerLayout
}

// matrix is the weights of a linear layer, [out, in] at an offset.
type matrix struct{ offset, out, in int }

// layerLayout says where one layer's tensors lie. qkv holds the three projections one
// after the other, and bias their biases; gateUp holds two.
type layerLayout struct {
	qkv, out, gateUp, down           matrix
	norm1, bias, qNorm, kNorm, norm2 int // offsets
}

// tensorSpan says where the elements of a tensor lie: element (i, j) of its Data is
// at offset + rows[i]·stride + cols[j]. A vector has one row.
type tensorSpan struct {
	offset, stride int
	rows, cols     []int
	size           int  // padded
	decays         bool // rank 2: weight decay applies
}

func newLayout(a model.Architecture) *layout {
	h := 2 * ((a.HeadDim/2 + 7) / 8 * 8)
	words := kernel.Pad(a.VocabSize)
	l := &layout{
		Architecture: a, d: kernel.Pad(a.HiddenSize), f: kernel.Pad(a.FeedForward), h: h, v: words,
		q: (a.Heads + 2*a.KVHeads) * h, o: a.Heads * h, group: a.Heads / a.KVHeads,
		scale: float32(1 / math.Sqrt(float64(a.HeadDim))), epsilon: float32(a.NormEpsilon),
	}
	hidden, feed, vocab := identityIndex(a.HiddenSize), identityIndex(a.FeedForward), identityIndex(a.VocabSize)
	query, key, single := l.heads(a.Heads), l.heads(a.KVHeads), l.heads(1)
	scalar := []int{0}

	l.embed = l.matrix(vocab, words, hidden, l.d)
	for range a.Layers {
		var at layerLayout
		at.norm1 = l.vector(scalar, hidden, l.d)
		at.qkv = matrix{l.matrix(query, l.o, hidden, l.d), l.q, l.d}
		l.matrix(key, a.KVHeads*h, hidden, l.d)
		l.matrix(key, a.KVHeads*h, hidden, l.d)
		at.out = matrix{l.matrix(hidden, l.d, query, l.o), l.d, l.o}
		at.norm2 = l.vector(scalar, hidden, l.d)
		at.gateUp = matrix{l.matrix(feed, l.f, hidden, l.d), 2 * l.f, l.d}
		l.matrix(feed, l.f, hidden, l.d)
		at.down = matrix{l.matrix(hidden, l.d, feed, l.f), l.d, l.f}
		if a.QKVBias {
			at.bias = l.vector(scalar, query, l.o)
			l.vector(scalar, key, a.KVHeads*h)
			l.vector(scalar, key, a.KVHeads*h)
		}
		if a.QKNorm {
			at.qNorm = l.vector(scalar, single, h)
			at.kNorm = l.vector(scalar, single, h)
		}
		l.layers = append(l.layers, at)
	}
	l.norm = l.vector(scalar, hidden, l.d)
	l.head = matrix{l.embed, l.v, l.d}
	switch {
	case a.ValueHead:
		l.v = kernel.Pad(1)
		l.head = matrix{l.matrix(scalar, l.v, hidden, l.d), l.v, l.d}
		l.valueBias = l.vector(scalar, scalar, l.v)
	case !a.Tied:
		l.head.offset = l.matrix(vocab, words, hidden, l.d)
	}
	return l
}

// pageShape returns the shape of pages of keys and values.
func (l *layout) pageShape() kvcache.Shape {
	return kvcache.Shape{Layers: l.Layers, Heads: l.KVHeads, HeadSize: l.h}
}

// identityIndex returns the index of an axis that is padded at its end: element i lies at i.
func identityIndex(n int) []int {
	index := make([]int, n)
	for i := range index {
		index[i] = i
	}
	return index
}

// heads returns the index of an axis of n heads, each half of which is padded.
func (l *layout) heads(n int) []int {
	var index []int
	half := l.HeadDim / 2
	for head := range n {
		for i := range l.HeadDim {
			index = append(index, head*l.h+i/half*(l.h/2)+i%half)
		}
	}
	return index
}

func (p *placement) matrix(rows []int, paddedRows int, cols []int, paddedCols int) int {
	return p.put(tensorSpan{rows: rows, cols: cols, stride: paddedCols, size: paddedRows * paddedCols, decays: true})
}

func (p *placement) vector(row, cols []int, padded int) int {
	return p.put(tensorSpan{rows: row, cols: cols, stride: padded, size: padded})
}

func (p *placement) put(s tensorSpan) int {
	s.offset = p.size
	p.tensors = append(p.tensors, s)
	p.size += s.size
	return s.offset
}

// read copies w, which matches the tensors, into a flat slice of zeros.
func (p *placement) read(flat []float32, w model.Weights) {
	for t, s := range p.tensors {
		for i, row := range s.rows {
			to := flat[s.offset+row*s.stride:]
			for j, col := range s.cols {
				to[col] = w[t].Data[i*len(s.cols)+j]
			}
		}
	}
}

// write sets the Data of w, whose tensors have the placement's names and shapes, to
// copies of a flat slice's numbers.
func (p *placement) write(flat []float32, w model.Weights) model.Weights {
	for t, s := range p.tensors {
		w[t].Data = make([]float32, w[t].Size())
		for i, row := range s.rows {
			from := flat[s.offset+row*s.stride:]
			for j, col := range s.cols {
				w[t].Data[i*len(s.cols)+j] = from[col]
			}
		}
	}
	return w
}

// view does what write does, but it does not copy tensors that lie in flat without
// padding: their Data is a part of flat.
func (p *placement) view(flat []float32, w model.Weights) model.Weights {
	for t, s := range p.tensors {
		n := len(s.rows) * len(s.cols)
		if s.isDense() {
			w[t].Data = flat[s.offset : s.offset+n : s.offset+n]
			continue
		}
		w[t].Data = make([]float32, 0, n)
		for _, row := range s.rows {
			from := flat[s.offset+row*s.stride:]
			for _, col := range s.cols {
				w[t].Data = append(w[t].Data, from[col])
			}
		}
	}
	return w
}

// isDense reports whether the tensor lies without padding.
func (p tensorSpan) isDense() bool {
	return isStraight(p.rows) && isStraight(p.cols) && (len(p.rows) == 1 || p.stride == len(p.cols))
}

func isStraight(index []int) bool {
	for i, at := range index {
		if at != i {
			return false
		}
	}
	return true
}
