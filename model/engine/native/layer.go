package native

import (
	"math"

	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// pass holds everything that a forward pass reads: weights, kernels and angles. Training
// and decoding use the same steps of it, so their numbers are equal.
type pass struct {
	*parameters
	*kernel.Set
	angles  *rotary
	adapter *adapter    // nil where the whole model is trained
	base    *base       // of the adapter; the reference keeps it alive
	split   *threadPool // set for a wide model, whose threads share each step; else nil
	unused  [][2]int    // the first and the last of each range of ids without a token
}

// activations holds the results of a layer for R positions that its backward pass needs.
type activations struct {
	x         []float32 // R·D, the residual stream before the layer
	inverse1  []float32 // R
	normed1   []float32 // R·D
	raw       []float32 // R·Q, qkv before the norms of queries and keys, if any
	inverseQK []float32 // R·heads, if there are such norms
	qkv       []float32 // R·Q
	attention []float32 // per sequence and head, a row of probabilities per position
	mixed     []float32 // R·O
	middle    []float32 // R·D, the residual stream after attention
	inverse2  []float32 // R
	normed2   []float32 // R·D
	gateUp    []float32 // R·2F
	act       []float32 // R·F
	low       []float32 // R·(adapted matrices · rank), the scaled products with the A of an adapter
}

func (p *pass) takeActivations(a *arena, rows int) activations {
	raw, inverse, low := 0, 0, 0
	if p.adapter != nil {
		low = rows * p.adapter.width
	}
	if p.QKNorm {
		raw, inverse = rows*p.q, rows*(p.Heads+p.KVHeads)
	}
	return activations{
		x: a.alloc(rows * p.d), inverse1: a.alloc(rows), normed1: a.alloc(rows * p.d),
		raw: a.alloc(raw), inverseQK: a.alloc(inverse), qkv: a.alloc(rows * p.q), mixed: a.alloc(rows * p.o),
		middle: a.alloc(rows * p.d), inverse2: a.alloc(rows), normed2: a.alloc(rows * p.d),
		gateUp: a.alloc(rows * 2 * p.f), act: a.alloc(rows * p.f),
		low: a.alloc(low),
	}
}

// project computes queries, keys and values, before the rotary embedding.
func (p *pass) project(layer int, a *activations, rows int) {
	at := &p.layers[layer]
	p.norm(at.norm1, a.normed1, a.x, a.inverse1, rows)
	to := a.qkv
	if p.QKNorm {
		to = a.raw
	}
	if p.QKVBias {
		bias := p.vectorAt(at.bias, p.q)
		for r := range rows {
			copy(to[r*p.q:], bias)
		}
	}
	p.linear(at.qkv, to, a.normed1, rows, p.QKVBias)
	p.adapt(layer, adaptedQKV, a, to, a.normed1, rows)
	if !p.QKNorm {
		return
	}
	keys, values, heads := p.o, p.o+p.KVHeads*p.h, p.Heads+p.KVHeads
	qNorm, kNorm := p.vectorAt(at.qNorm, p.h), p.vectorAt(at.kNorm, p.h)
	for r := range rows {
		to, from, inverse := a.qkv[r*p.q:], a.raw[r*p.q:], a.inverseQK[r*heads:]
		p.Norm(to, from, qNorm, inverse, p.Heads, p.HeadDim, p.epsilon)
		p.Norm(to[keys:], from[keys:], kNorm, inverse[p.Heads:], p.KVHeads, p.HeadDim, p.epsilon)
		copy(to[values:p.q], from[values:p.q])
	}
}

// rotate applies rotary embedding to the queries and keys of row r.
func (p *pass) rotate(qkv []float32, r, position int) {
	cos, sin := p.angles.at(position)
	p.Rotate(qkv[r*p.q:(r+1)*p.q], cos, sin, p.Heads+p.KVHeads)
}

// feedForward adds the mixed values to the residual stream, then the feed-forward layer.
// next becomes the stream after the layer and may be a.x; if it is nil, that stream is not
// computed.
func (p *pass) feedForward(layer int, a *activations, next []float32, rows int) {
	at, n := &p.layers[layer], rows*p.d
	copy(a.middle[:n], a.x)
	p.linear(at.out, a.middle, a.mixed, rows, true)
	p.adapt(layer, adaptedOut, a, a.middle, a.mixed, rows)
	p.norm(at.norm2, a.normed2, a.middle, a.inverse2, rows)
	p.linear(at.gateUp, a.gateUp, a.normed2, rows, false)
	p.adapt(layer, adaptedGateUp, a, a.gateUp, a.normed2, rows)
	p.activate(a.gateUp, a.act, rows)
	if next == nil {
		p.adapt(layer, adaptedDown, a, nil, a.act, rows)
		return
	}
	copy(next[:n], a.middle)
	p.linear(at.down, next, a.act, rows, true)
	p.adapt(layer, adaptedDown, a, next, a.act, rows)
}

// output computes logits from rows of the normed stream, or values without their bias. own
// is memory for trained tokens, rows × tokenWidth.
func (p *pass) output(logits, own, normed []float32, rows int) {
	if p.trainsHead() {
		p.adapter.values(p.Set, logits, normed, rows)
		return
	}
	p.linear(p.head, logits, normed, rows, false)
	p.replaceLogits(logits, own, normed, rows)
	for r := range rows {
		p.fillUnused(logits[r*p.v:], kernel.Hidden)
	}
}

// fillUnused sets the numbers of the ids without a token: their logits to one so low that
// their probability is 0, or the gradient of their logits to 0.
func (p *pass) fillUnused(x []float32, value float32) {
	for _, ids := range p.unused {
		for i := ids[0]; i <= ids[1]; i++ {
			x[i] = value
		}
	}
}

// outcome is the result of a position's logits for one token.
type outcome struct {
	logprob, entropy float32
	most, logSum     float32 // the soft-max is e^(scale·(x-most) - logSum)
}

// tokenOutcome computes the outcome for token at, given n logits and the factor scale.
func (p *pass) tokenOutcome(logits []float32, n, at int, scale float32) outcome {
	most, sum, weighted := p.LogSumExp(logits, n, scale)
	logSum := float32(math.Log(float64(sum)))
	o := outcome{
		// Rounding could make the entropy negative if one token is certain.
		entropy: max(0, logSum-weighted/sum),
		most:    most, logSum: logSum,
	}
	o.logprob = o.logprobOf(logits[at], scale)
	return o
}

// logprobOf returns the log-probability of a token with the given logit.
func (o outcome) logprobOf(logit, scale float32) float32 {
	return float32((logit-o.most)*scale) - o.logSum
}
