package native

import (
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/native/kernel"
)

// layout places an architecture's tensors, padded, in one flat slice. Padding is
// zero and stays so.
type layout struct {
	model.Architecture
	d, f, h, v int // padded hidden size, feed-forward size, head and width of the output
	q, o       int // all heads of a position; its query heads
	group      int // query heads that share a key head
	scale      float32
	epsilon    float32
	size       int // numbers in all
	embed      int // offsets
	norm, head int // head is embed where embeddings are tied
	valueBias  int // of a critic
	layers     []layerLayout
	tensors    []tensorSpan // in the order of Architecture.Tensors
}

// layerLayout holds the offsets of one layer's tensors. qkv is the three
// projections one after the other, and so is bias; gateUp is two.
type layerLayout struct {
	norm1, qkv, bias, qNorm, kNorm, out, norm2, gateUp, down int
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
	hidden, feed, vocab := straight(a.HiddenSize), straight(a.FeedForward), straight(a.VocabSize)
	query, key, single := l.heads(a.Heads), l.heads(a.KVHeads), l.heads(1)
	scalar := []int{0}

	l.embed = l.matrix(vocab, words, hidden, l.d)
	for range a.Layers {
		var at layerLayout
		at.norm1 = l.vector(scalar, hidden, l.d)
		at.qkv = l.matrix(query, l.o, hidden, l.d)
		l.matrix(key, a.KVHeads*h, hidden, l.d)
		l.matrix(key, a.KVHeads*h, hidden, l.d)
		at.out = l.matrix(hidden, l.d, query, l.o)
		at.norm2 = l.vector(scalar, hidden, l.d)
		at.gateUp = l.matrix(feed, l.f, hidden, l.d)
		l.matrix(feed, l.f, hidden, l.d)
		at.down = l.matrix(hidden, l.d, feed, l.f)
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
	l.head = l.embed
	switch {
	case a.ValueHead:
		l.v = kernel.Pad(1)
		l.head = l.matrix(scalar, l.v, hidden, l.d)
		l.valueBias = l.vector(scalar, scalar, l.v)
	case !a.Tied:
		l.head = l.matrix(vocab, words, hidden, l.d)
	}
	return l
}

// straight is the index of an axis that is padded at its end.
func straight(n int) []int {
	index := make([]int, n)
	for i := range index {
		index[i] = i
	}
	return index
}

// heads is the index of an axis of n heads, each half of each padded.
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

func (l *layout) matrix(rows []int, paddedRows int, cols []int, paddedCols int) int {
	return l.put(tensorSpan{rows: rows, cols: cols, stride: paddedCols, size: paddedRows * paddedCols, decays: true})
}

func (l *layout) vector(row, cols []int, padded int) int {
	return l.put(tensorSpan{rows: row, cols: cols, stride: padded, size: padded})
}

func (l *layout) put(p tensorSpan) int {
	p.offset = l.size
	l.tensors = append(l.tensors, p)
	l.size += p.size
	return p.offset
}

// read copies w, which matches the architecture, into a flat slice.
func (l *layout) read(w model.Weights) []float32 {
	flat := make([]float32, l.size)
	for t, p := range l.tensors {
		for i, row := range p.rows {
			to := flat[p.offset+row*p.stride:]
			for j, col := range p.cols {
				to[col] = w[t].Data[i*len(p.cols)+j]
			}
		}
	}
	return flat
}

// write returns a flat slice's numbers as tensors.
func (l *layout) write(flat []float32) model.Weights {
	w := l.Zeros()
	for t, p := range l.tensors {
		for i, row := range p.rows {
			from := flat[p.offset+row*p.stride:]
			for j, col := range p.cols {
				w[t].Data[i*len(p.cols)+j] = from[col]
			}
		}
	}
	return w
}
