package native

import (
	"math"

	"github.com/fulgurite/fulgurite/model/native/kernel"
)

// pass is what a forward pass reads: weights, kernels and angles. Training and
// decoding share its steps, which is why their numbers are equal.
type pass struct {
	*parameters
	*kernel.Set
	angles *rotary
}

// activations are what a layer computes for R positions, and what its backward
// pass needs again.
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
}

func (l *layout) takeActivations(a *arena, rows int) activations {
	raw, inverse := 0, 0
	if l.QKNorm {
		raw, inverse = rows*l.q, rows*(l.Heads+l.KVHeads)
	}
	return activations{
		x: a.alloc(rows * l.d), inverse1: a.alloc(rows), normed1: a.alloc(rows * l.d),
		raw: a.alloc(raw), inverseQK: a.alloc(inverse), qkv: a.alloc(rows * l.q), mixed: a.alloc(rows * l.o),
		middle: a.alloc(rows * l.d), inverse2: a.alloc(rows), normed2: a.alloc(rows * l.d),
		gateUp: a.alloc(rows * 2 * l.f), act: a.alloc(rows * l.f),
	}
}

// vectorAt is the weights of n numbers at offset.
func (p *parameters) vectorAt(offset, n int) []float32 { return p.flat[offset : offset+n] }

// embedding is the row of a token.
func (p *parameters) embedding(token int32) []float32 {
	return p.vectorAt(p.embed+int(token)*p.d, p.d)
}

// project computes queries, keys and values, before the rotary embedding.
func (p *pass) project(layer int, a *activations, rows int) {
	at := &p.layers[layer]
	p.Norm(a.normed1, a.x, p.vectorAt(at.norm1, p.d), a.inverse1, rows, p.HiddenSize, p.epsilon)
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
	p.MatMulPacked(to, p.q, a.normed1, p.d, p.forward[at.qkv:], rows, p.q, p.d, p.QKVBias)
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

// feedForward adds the mixed values to the residual stream, then the feed-forward
// layer; next becomes the stream after the layer and may be a.x.
func (p *pass) feedForward(layer int, a *activations, next []float32, rows int) {
	at, n := &p.layers[layer], rows*p.d
	copy(a.middle[:n], a.x)
	p.MatMulPacked(a.middle, p.d, a.mixed, p.o, p.forward[at.out:], rows, p.d, p.o, true)
	p.Norm(a.normed2, a.middle, p.vectorAt(at.norm2, p.d), a.inverse2, rows, p.HiddenSize, p.epsilon)
	p.MatMulPacked(a.gateUp, 2*p.f, a.normed2, p.d, p.forward[at.gateUp:], rows, 2*p.f, p.d, false)
	p.SwiGLU(a.gateUp, a.act, rows, p.f)
	copy(next[:n], a.middle)
	p.MatMulPacked(next, p.d, a.act, p.f, p.forward[at.down:], rows, p.d, p.f, true)
}

// output turns the stream into logits.
func (p *pass) output(logits, normed, x, inverse []float32, rows int) {
	p.Norm(normed, x, p.vectorAt(p.norm, p.d), inverse, rows, p.HiddenSize, p.epsilon)
	p.MatMulPacked(logits, p.v, normed, p.d, p.forward[p.head:], rows, p.v, p.d, false)
}

// outcome is what a position's logits say of one token.
type outcome struct {
	logprob, entropy float32
	most, logSum     float32 // the soft-max is e^(scale·(x-most) - logSum)
}

// tokenOutcome computes the outcome of token at of n logits, times scale.
func (p *pass) tokenOutcome(logits []float32, n, at int, scale float32) outcome {
	most, sum, weighted := p.LogSumExp(logits, n, scale)
	logSum := float32(math.Log(float64(sum)))
	return outcome{
		logprob: float32((logits[at]-most)*scale) - logSum,
		// Rounding may take a certain token's entropy below 0.
		entropy: max(0, logSum-weighted/sum),
		most:    most, logSum: logSum,
	}
}
