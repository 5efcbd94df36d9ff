package gomlx

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:revive,staticcheck // formulas read as formulas
	"github.com/gomlx/gomlx/core/tensors"
)

// score takes the weights; then tokens and targets [B,S], temperatures [B], cos and sin
// [S,H/2], and optionally which tokens may be chosen [B,S,V], true or false. It returns
// the log-probability of each target and the entropy of its distribution, both [B,S].
func (t transformer) score(in []*Node) []*Node {
	n := len(t.Tensors())
	logprob, entropy := t.sequence(in[:n], in[n:])
	return []*Node{logprob, entropy}
}

// gradient takes the weights, the gradient so far for each, the inputs of score after the
// weights, and the derivatives of the loss by log-probability and by entropy [B,S]. It
// returns the gradients, to which those of these rows are added.
func (t transformer) gradient(in []*Node) []*Node {
	n := len(t.Tensors())
	w, sums, rest := in[:n], in[n:2*n], in[2*n:len(in)-2]
	byLogprob, byEntropy := in[len(in)-2], in[len(in)-1]
	logprob, entropy := t.sequence(w, rest)
	// The objective enters as coefficients, so the derivative of this linear form is the
	// derivative of the loss, for any loss.
	loss := ReduceAllSum(Add(Mul(logprob, byLogprob), Mul(entropy, byEntropy)))
	out := Gradient(loss, w...)
	for i := range out {
		out[i] = Add(sums[i], out[i])
	}
	return out
}

// sequence returns the log-probability and the entropy; for a critic, a value and 0.
func (t transformer) sequence(nodes, in []*Node) (logprob, entropy *Node) {
	tokens, targets, temperature, cos, sin := in[0], in[1], in[2], in[3], in[4]
	g, w := tokens.Graph(), t.weights(nodes)
	b, s := tokens.Shape().Dimensions[0], tokens.Shape().Dimensions[1]
	square := shapes.Make(dtypes.Int32, s, s)
	bias := Where(GreaterOrEqual(Iota(g, square, 0), Iota(g, square, 1)),
		Zeros(g, shapes.Make(dtypes.Float32, s, s)), BroadcastToDims(Scalar(g, dtypes.Float32, masked), s, s))
	bias = Reshape(bias, 1, 1, 1, s, s)
	cos, sin = Reshape(cos, 1, s, 1, t.HeadDim/2), Reshape(sin, 1, s, 1, t.HeadDim/2)
	x := t.hidden(w, tokens, cos, sin, func(_ int, q, k, v *Node) *Node {
		return t.softmaxAttention(q, k, v, bias)
	})
	if t.ValueHead {
		value := Reshape(linear(x, w.byName["score.weight"], w.byName["score.bias"]), b, s)
		return value, ZerosLike(value)
	}
	logits := Div(t.logits(w, x), Reshape(temperature, b, 1, 1))
	if len(in) > 5 { // tokens that may not be chosen get exactly the probability 0
		logits = Where(in[5], logits, BroadcastToDims(Scalar(g, dtypes.Float32, masked), logits.Shape().Dimensions...))
	}
	logprobs := LogSoftmax(logits, -1)
	return pick(logprobs, targets), Neg(ReduceSum(Mul(Exp(logprobs), logprobs), -1))
}

// squaredNorm returns the sum of the squares of all its inputs, in float64, so that it
// overflows only if an input does.
func squaredNorm(in []*Node) []*Node {
	var sum *Node
	for _, x := range in {
		s := ReduceAllSum(Square(ConvertDType(x, dtypes.Float64)))
		if sum == nil {
			sum = s
		} else {
			sum = Add(sum, s)
		}
	}
	return []*Node{sum}
}

// These are the indices of an update's numbers in the input of adamw. Complements and
// corrections are computed in float64 on the host: in float32, 1−0.999 has only four
// digits left.
const (
	scale = iota // factor of the gradient, 1 if it is not clipped
	beta1
	oneMinusBeta1
	beta2
	oneMinusBeta2
	correction1 // 1 − beta1^t
	correction2
	epsilon
	learningRate
	decay
	numbers // how many
)

// adamw takes weights, first and second moments, gradients, and the numbers
// above; it gives the new weights and moments.
func (t transformer) adamw(in []*Node) []*Node {
	n := len(t.Tensors())
	weights, mean, variance, gradient, number := in[:n], in[n:2*n], in[2*n:3*n], in[3*n:4*n], in[4*n]
	at := func(i int) *Node { return Reshape(SliceAxis(number, 0, AxisElem(i))) }
	out := make([]*Node, 3*n)
	for i := range n {
		g := Mul(gradient[i], at(scale))
		m := Add(Mul(mean[i], at(beta1)), Mul(g, at(oneMinusBeta1)))
		v := Add(Mul(variance[i], at(beta2)), Mul(Square(g), at(oneMinusBeta2)))
		step := Div(Div(m, at(correction1)), Add(Sqrt(Div(v, at(correction2))), at(epsilon)))
		if weights[i].Rank() > 1 {
			step = Add(step, Mul(weights[i], at(decay)))
		}
		out[i], out[n+i], out[2*n+i] = Sub(weights[i], Mul(step, at(learningRate))), m, v
	}
	return out
}

// bucket rounds n up to a size for which graphs are compiled: a power of two, or one and
// a half times a power of two, from 8 on. At most a third is padding.
func bucket(n int) int {
	if n <= 8 {
		return 8
	}
	p := powerOfTwo(n)
	if q := p / 4 * 3; n <= q {
		return q
	}
	return p
}

// powerOfTwo rounds n up to a power of two.
func powerOfTwo(n int) int {
	return 1 << bits.Len(uint(max(n, 1)-1))
}

// padded is a group of rows of similar length in the form of a graph's inputs.
type padded struct {
	rows    []int // indices of the caller's rows
	b, s    int   // rows and tokens, padding included
	tokens  []int32
	targets []int32
	// temperatures is 1 in padded rows: a 0 would cause a division by zero.
	temperatures []float32
	// allowed says for each position which of the v tokens of the vocabulary may be
	// chosen; nil if all tokens may be chosen everywhere.
	allowed []bool
	v       int
}

// pad checks rows and groups them by length, so that short rows are not padded to the
// longest. A group has at most limit tokens. Rows without a target are in no group.
func pad(a model.Architecture, rows []model.Row, limit int) ([]padded, error) {
	order := make([]int, 0, len(rows))
	for i, r := range rows {
		if err := r.Check(a); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
		if len(r.Tokens) > 1 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(rows[j].Tokens) - len(rows[i].Tokens) })
	var groups []padded
	for len(order) > 0 {
		s := bucket(len(rows[order[0]].Tokens) - 1)
		n := 1
		for n < len(order) && bucket(len(rows[order[n]].Tokens)-1) == s && powerOfTwo(n+1)*s <= limit {
			n++
		}
		groups = append(groups, newPadded(rows, order[:n], s, a.VocabSize))
		order = order[n:]
	}
	return groups, nil
}

func newPadded(rows []model.Row, indices []int, s, v int) padded {
	b := powerOfTwo(len(indices))
	p := padded{
		rows: indices, b: b, s: s, v: v,
		tokens: make([]int32, b*s), targets: make([]int32, b*s), temperatures: make([]float32, b),
	}
	for k := range p.temperatures {
		p.temperatures[k] = 1
	}
	for k, i := range indices {
		r := rows[i]
		copy(p.tokens[k*s:(k+1)*s], r.Tokens[:len(r.Tokens)-1])
		copy(p.targets[k*s:(k+1)*s], r.Tokens[1:])
		if r.Temperature != 0 {
			p.temperatures[k] = float32(r.Temperature)
		}
		for t, set := range r.Allowed {
			if set != nil {
				p.restrict(k*s+t, set)
			}
		}
	}
	return p
}

// restrict allows only a set at one position.
func (p *padded) restrict(position int, set model.TokenSet) {
	if p.allowed == nil {
		p.allowed = make([]bool, p.b*p.s*p.v)
		for i := range p.allowed {
			p.allowed[i] = true
		}
	}
	at := p.allowed[position*p.v : (position+1)*p.v]
	for token := range at {
		at[token] = set.Has(int32(token))
	}
}

// inputs returns the inputs of score that come after the weights.
func (p padded) inputs(r *rotary) (in []any, err error) {
	defer caught(&err)
	cos, sin := r.table(p.s)
	in = []any{
		tensors.FromFlatDataAndDimensions(p.tokens, p.b, p.s),
		tensors.FromFlatDataAndDimensions(p.targets, p.b, p.s),
		tensors.FromFlatDataAndDimensions(p.temperatures, p.b),
		tensors.FromFlatDataAndDimensions(cos, p.s, r.half),
		tensors.FromFlatDataAndDimensions(sin, p.s, r.half),
	}
	if p.allowed != nil {
		in = append(in, tensors.FromFlatDataAndDimensions(p.allowed, p.b, p.s, p.v))
	}
	return in, nil
}
