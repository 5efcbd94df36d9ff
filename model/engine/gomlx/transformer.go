package gomlx

import (
	"math"
	"strconv"

	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph" //nolint:revive,staticcheck // formulas read as formulas

	"github.com/fulgurite/fulgurite/model"
)

// masked is added to scores that must not count: exp of it is exactly 0.
const masked = -1e9

// transformer builds graphs of one architecture.
type transformer struct {
	model.Architecture
}

// weights finds a tensor by what follows prefix in its name.
type weights struct {
	byName map[string]*Node
	prefix string
}

func (t transformer) weights(nodes []*Node) weights {
	w := weights{byName: make(map[string]*Node, len(nodes)), prefix: "model."}
	for i, tensor := range t.Tensors() {
		w.byName[tensor.Name] = nodes[i]
	}
	return w
}

func (w weights) at(name string) *Node { return w.byName[w.prefix+name] }

func (w weights) layer(l int) weights {
	return weights{w.byName, "model.layers." + strconv.Itoa(l) + "."}
}

// attend mixes values: q is [B,S,G,R,H], k and v are [B,S,G,H], the result is
// like q.
type attend func(layer int, q, k, v *Node) *Node

// hidden returns the last hidden state, normalized: [B,S,D] for tokens [B,S]. cos and sin
// broadcast to [B,S,1,H/2].
func (t transformer) hidden(w weights, tokens, cos, sin *Node, mix attend) *Node {
	x := Gather(w.at("embed_tokens.weight"), InsertAxes(tokens, -1))
	for l := range t.Layers {
		layer := w.layer(l)
		h := t.norm(x, layer.at("input_layernorm.weight"))
		x = Add(x, t.attention(l, layer, h, cos, sin, mix))
		h = t.norm(x, layer.at("post_attention_layernorm.weight"))
		gate := linear(h, layer.at("mlp.gate_proj.weight"), nil)
		up := linear(h, layer.at("mlp.up_proj.weight"), nil)
		x = Add(x, linear(Mul(Mul(gate, Sigmoid(gate)), up), layer.at("mlp.down_proj.weight"), nil))
	}
	return t.norm(x, w.at("norm.weight"))
}

func (t transformer) attention(l int, w weights, h, cos, sin *Node, mix attend) *Node {
	b, s := h.Shape().Dimensions[0], h.Shape().Dimensions[1]
	project := func(name string, heads int) *Node {
		return Reshape(linear(h, w.at("self_attn."+name+"_proj.weight"), w.at("self_attn."+name+"_proj.bias")), b, s, heads, t.HeadDim)
	}
	q, k, v := project("q", t.Heads), project("k", t.KVHeads), project("v", t.KVHeads)
	if t.QKNorm {
		q = t.norm(q, w.at("self_attn.q_norm.weight"))
		k = t.norm(k, w.at("self_attn.k_norm.weight"))
	}
	q, k = rotate(q, cos, sin), rotate(k, cos, sin)
	q = Reshape(q, b, s, t.KVHeads, t.Heads/t.KVHeads, t.HeadDim)
	mixed := Reshape(mix(l, q, k, v), b, s, t.Heads*t.HeadDim)
	return linear(mixed, w.at("self_attn.o_proj.weight"), nil)
}

// softmaxAttention returns the mean of v, weighted by the soft-max of q·k over the square
// root of H, plus bias. q is [B,S,G,R,H], k and v are [B,T,G,H], bias broadcasts to
// [B,G,R,S,T].
func (t transformer) softmaxAttention(q, k, v, bias *Node) *Node {
	scores := MulScalar(Einsum("bsgrh,btgh->bgrst", q, k), 1/math.Sqrt(float64(t.HeadDim)))
	return Einsum("bgrst,btgh->bsgrh", Softmax(Add(scores, bias), -1), v)
}

// norm returns RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467) over the last axis.
func (t transformer) norm(x, weight *Node) *Node {
	meanSquare := ReduceAndKeep(Square(x), ReduceMean, -1)
	// GoMLX has no gradient for Rsqrt.
	return Mul(Div(x, Sqrt(AddScalar(meanSquare, t.NormEpsilon))), ExpandLeftToRank(weight, x.Rank()))
}

// linear returns x·Wᵀ + b for W of [out, in]; b may be nil.
func linear(x, weight, bias *Node) *Node {
	y := DotGeneral(x, []int{x.Rank() - 1}, nil, weight, []int{1}, nil)
	if bias == nil {
		return y
	}
	return Add(y, ExpandLeftToRank(bias, y.Rank()))
}

// rotate applies rotary position embedding (Su et al., 2021, arXiv:2104.09864) with
// Hugging Face's pairs: i goes with i+H/2.
func rotate(x, cos, sin *Node) *Node {
	half := x.Shape().Dimensions[x.Rank()-1] / 2
	a, b := SliceAxis(x, -1, AxisRange(0, half)), SliceAxis(x, -1, AxisRange(half, 2*half))
	return Concatenate([]*Node{Sub(Mul(a, cos), Mul(b, sin)), Add(Mul(b, cos), Mul(a, sin))}, -1)
}

// logits returns the logits [...,V] of hidden states [...,D].
func (t transformer) logits(w weights, hidden *Node) *Node {
	output := w.at("embed_tokens.weight")
	if !t.Tied {
		output = w.byName["lm_head.weight"]
	}
	logits := linear(hidden, output, nil)
	if t.Unused == "" {
		return logits
	}
	// Ids without a token get exactly the probability 0.
	used := make([]bool, t.VocabSize)
	for id := range used {
		used[id] = true
	}
	t.Unused.Each(func(first, last int) { clear(used[first : last+1]) })
	return Where(BroadcastToDims(ExpandLeftToRank(Const(hidden.Graph(), used), logits.Rank()), logits.Shape().Dimensions...),
		logits, BroadcastToDims(Scalar(hidden.Graph(), dtypes.Float32, masked), logits.Shape().Dimensions...))
}

// pick returns the number at index in the last axis: x is [...,V], index and the result
// are [...].
func pick(x, index *Node) *Node {
	v := x.Shape().Dimensions[x.Rank()-1]
	return ReduceSum(Mul(x, OneHot(index, v, dtypes.Float32)), -1)
}
