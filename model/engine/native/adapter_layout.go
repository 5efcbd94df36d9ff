package native

import (
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// The matrices of a layer that an adapter adds to.
const (
	adaptedQKV = iota
	adaptedOut
	adaptedGateUp
	adaptedDown
	adaptedMatrices
)

// lowRank adapts some columns of a matrix's output: those of one linear layer.
type lowRank struct {
	a, b    int // offsets of A, [rank, in], and B, [out, rank]
	in, out int
	from    int // first column of the output
	low     int // first column in activations.low
}

// adapterLayout places the tensors of an adapter, of trained tokens, and of a critic's
// value head.
type adapterLayout struct {
	placement
	rank      int // padded
	hidden    int // padded size of a row of a token
	width     int // of activations.low
	scale     float32
	layers    [][adaptedMatrices][]lowRank
	widths    [adaptedMatrices]int // of the matrices' outputs
	head      matrix               // value head of a critic; valueBias is the offset of its bias
	valueBias int
	tokens    trainedTokens
}

// projection is a linear layer within a matrix: out lists the rows of its weights, and
// from is the first of its rows in the matrix.
type projection struct {
	target           string
	matrix           int
	in, out          []int
	paddedIn, padded int
	from             int
}

// projections returns the linear layers of a layer, in the order of Architecture.Tensors.
func (l *layout) projections() []projection {
	hidden, feed := identityIndex(l.HiddenSize), identityIndex(l.FeedForward)
	query, key, keys := l.heads(l.Heads), l.heads(l.KVHeads), l.KVHeads*l.h
	return []projection{
		{"q_proj", adaptedQKV, hidden, query, l.d, l.o, 0},
		{"k_proj", adaptedQKV, hidden, key, l.d, keys, l.o},
		{"v_proj", adaptedQKV, hidden, key, l.d, keys, l.o + keys},
		{"o_proj", adaptedOut, query, hidden, l.o, l.d, 0},
		{"gate_proj", adaptedGateUp, hidden, feed, l.d, l.f, 0},
		{"up_proj", adaptedGateUp, hidden, feed, l.d, l.f, l.f},
		{"down_proj", adaptedDown, feed, hidden, l.f, l.d, 0},
	}
}

// newAdapterLayout places the tensors of Architecture.AdapterTensors in their order.
func newAdapterLayout(l *layout, numbers model.LoRA) *adapterLayout {
	a := &adapterLayout{
		rank: kernel.Pad(numbers.Rank), hidden: l.d, scale: numbers.Scale(),
		widths: [adaptedMatrices]int{l.q, l.d, 2 * l.f, l.d},
	}
	targets := map[string]bool{}
	for _, t := range numbers.Targets {
		targets[t] = true
	}
	a.tokens = newTrainedTokens(numbers.Tokens)
	a.tokens.input = a.tokenRows(l)
	rank := identityIndex(numbers.Rank)
	for range l.Layers {
		var at [adaptedMatrices][]lowRank
		a.width = 0
		for _, p := range l.projections() {
			if !targets[p.target] {
				continue
			}
			at[p.matrix] = append(at[p.matrix], lowRank{
				a: a.matrix(rank, a.rank, p.in, p.paddedIn), b: a.matrix(p.out, p.padded, rank, a.rank),
				in: p.paddedIn, out: p.padded, from: p.from, low: a.width,
			})
			a.width += a.rank
		}
		a.layers = append(a.layers, at)
	}
	a.tokens.output = a.tokens.input
	switch {
	case l.ValueHead:
		scalar := []int{0}
		a.head = matrix{a.matrix(scalar, l.v, identityIndex(l.HiddenSize), l.d), l.v, l.d}
		a.valueBias = a.vector(scalar, scalar, l.v)
	case !l.Tied:
		a.tokens.output = a.tokenRows(l)
	}
	return a
}
