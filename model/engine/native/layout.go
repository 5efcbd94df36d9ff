package native

import (
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
)

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
