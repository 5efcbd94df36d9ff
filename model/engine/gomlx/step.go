package gomlx

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:revive,staticcheck // formulas read as formulas
)

// step feeds up to C tokens to each row and samples one. It takes the weights; keys and
// values of each layer [B,T,G,H]; tokens [B,C]; start and count [B]; cos and sin
// [B,C,H/2]; temperatures [B]; noise [B,V]. The first count tokens of row b are at the
// positions from start on; the others are padding. It returns the keys and values, the
// token sampled after the last one fed, and its log-probability, both [B].
//
// The same graph reads prompts (many tokens) and continues completions (one), so
// rows can do either in the same batch.
func (t transformer) step(in []*Node) []*Node {
	out := t.stepLogits(in)
	return out[:len(out)-1]
}

// stepLogits does what step does. It also returns the logits before temperature and noise
// [B,V], for rows that choose among only some tokens.
func (t transformer) stepLogits(in []*Node) []*Node {
	n := len(t.Tensors())
	w, caches, rest := t.weights(in[:n]), in[n:n+2*t.Layers], in[n+2*t.Layers:]
	tokens, start, count, cos, sin, temperature, noise := rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6]
	g := tokens.Graph()
	b, c := tokens.Shape().Dimensions[0], tokens.Shape().Dimensions[1]
	positions := caches[0].Shape().Dimensions[1]

	feed := shapes.Make(dtypes.Int32, b, c)
	fed := LessThan(Iota(g, feed, 1), BroadcastToDims(InsertAxes(count, -1), b, c))
	at := Add(Iota(g, feed, 1), InsertAxes(start, -1))
	cells := shapes.Make(dtypes.Int32, b, c, positions)
	cell, atCell := Iota(g, cells, 2), BroadcastToDims(InsertAxes(at, -1), b, c, positions)
	// The caches are written by a product with ones and zeros, which is exact, because
	// the Go backend cannot update a slice.
	write := Mul(ConvertDType(Equal(cell, atCell), dtypes.Float32), InsertAxes(ConvertDType(fed, dtypes.Float32), -1))
	keep := Reshape(OneMinus(ReduceSum(write, 1)), b, positions, 1, 1)
	future := ConvertDType(GreaterThan(cell, atCell), dtypes.Float32)
	bias := Reshape(MulScalar(future, masked), b, 1, 1, c, positions)

	out := make([]*Node, 0, 2*t.Layers+3)
	cos, sin = Reshape(cos, b, c, 1, t.HeadDim/2), Reshape(sin, b, c, 1, t.HeadDim/2)
	x := t.hidden(w, tokens, cos, sin, func(layer int, q, k, v *Node) *Node {
		k = Add(Mul(caches[2*layer], keep), Einsum("bct,bcgh->btgh", write, k))
		v = Add(Mul(caches[2*layer+1], keep), Einsum("bct,bcgh->btgh", write, v))
		out = append(out, k, v)
		return t.softmaxAttention(q, k, v, bias)
	})
	last := ConvertDType(Equal(Iota(g, feed, 1), BroadcastToDims(InsertAxes(SubScalar(count, 1), -1), b, c)), dtypes.Float32)
	logits := t.logits(w, Einsum("bc,bcd->bd", last, x))
	logprobs := LogSoftmax(Div(logits, InsertAxes(temperature, -1)), -1)
	// The token has the largest sum of logit and noise; normalization shifts all logits
	// of a row equally.
	sampled := ArgMax(Add(logprobs, noise), -1, dtypes.Int32)
	return append(out, sampled, pick(logprobs, sampled), logits)
}

// regroup takes keys and values [B,T,G,H], then for each new row the index of its old
// row, and any vector as long as the new T. It returns keys and values with that many
// rows and positions; the first positions are the old ones.
func regroup(in []*Node) []*Node {
	n := len(in) - 2
	rows, positions := InsertAxes(in[n], -1), in[n+1].Shape().Dimensions[0]
	out := make([]*Node, n)
	for i, x := range in[:n] {
		x = Gather(x, rows)
		d := x.Shape().Dimensions
		switch {
		case positions < d[1]:
			x = SliceAxis(x, 1, AxisRange(0, positions))
		case positions > d[1]:
			more := Zeros(x.Graph(), shapes.Make(x.DType(), d[0], positions-d[1], d[2], d[3]))
			x = Concatenate([]*Node{x, more}, 1)
		}
		out[i] = x
	}
	return out
}
