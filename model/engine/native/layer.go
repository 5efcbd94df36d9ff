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

const (
	// attentionBlock is how many queries are multiplied at once. Keys beyond a
	// block's last query are not touched, so about half the work is saved.
	attentionBlock = 16
	// keepPositions is the length up to which the probabilities of a sequence are
	// kept for the backward pass. Their number grows with the square of the length, so
	// those of a longer one are computed again, to the same bits, piece by piece.
	keepPositions = 256
	// pieceNumbers is about how many probabilities of one head are computed again at
	// once.
	pieceNumbers = 1 << 18
)

// piece returns how many queries the backward pass takes at once: all, or some blocks of
// them.
func (q *sequence) piece() int {
	if q.attention >= 0 {
		return q.Own
	}
	return max(1, pieceNumbers/q.width/attentionBlock) * attentionBlock
}

// attend mixes the values of one sequence for its own positions: causal soft-max
// attention, where query heads in groups share a key and a value head, here kv.
func (s *shard) attend(thread *shardThread, a *activations, q *sequence, kv int) {
	key := s.o + kv*s.h
	value := key + s.KVHeads*s.h
	s.transpose(thread.transposed, a.qkv[key:], q)
	for head := kv * s.group; head < (kv+1)*s.group; head++ {
		for r := 0; r < q.Own; r += attentionBlock {
			p, m := thread.probabilities, min(attentionBlock, q.Own-r)
			if q.attention >= 0 {
				p = a.attention[q.attention+(head*q.Own+r)*q.width:]
			}
			s.distribute(p, thread.transposed, a, q, head, r, m)
			s.alongPath(a.mixed[(q.First()+r)*s.o+head*s.h:], s.o, p, a.qkv[value:], q, r, m)
		}
	}
}

// alongPath multiplies p by the rows of a head. p has one row for each of the m own
// positions from r on; the rows of the head are those of all positions up to them. It
// writes the product, m rows of a head, to to.
func (s *shard) alongPath(to []float32, toRow int, p, rows []float32, q *sequence, r, m int) {
	for _, part := range q.Path {
		if n := part.Below(q.Depth() + r + m); n > 0 {
			s.MatMul(to, toRow, p[part.At:], q.width, 1, rows[part.First*s.q:], s.q, m, s.h, n, part.At > 0)
		}
	}
}

// columns returns the number of keys, padded, that a block of m queries from r on sees.
func (q *sequence) columns(r, m int) int { return kernel.Pad(q.Depth() + r + m) }

// distribute sets p to the probabilities that a block of m queries from r on gives
// to keys.
func (s *shard) distribute(p, keys []float32, a *activations, q *sequence, head, r, m int) {
	columns := q.columns(r, m)
	s.MatMul(p, q.width, a.qkv[(q.First()+r)*s.q+head*s.h:], s.q, 1, keys, q.width, m, columns, s.h, false)
	for t := range m {
		s.Softmax(p[t*q.width:t*q.width+columns], q.Depth()+r+t+1, s.scale)
	}
}

// transpose sets to to the H×width transpose of a head's rows. It zeroes the columns
// beyond the sequence, because old numbers there might not be finite.
func (s *shard) transpose(to, rows []float32, q *sequence) {
	for _, part := range q.Path {
		s.Transpose(to[part.At:], q.width, rows[part.First*s.q:], s.q, part.N, s.h)
	}
	for i := range s.h {
		clear(to[i*q.width+q.N : (i+1)*q.width])
	}
}

// attendBackward computes s.dqkv from s.dmixed, for the own positions of one sequence and
// the heads that share the key head kv. To the gradients of keys and values of shared
// positions it only adds; the sequence that owns these positions has set them before.
func (s *shard) attendBackward(thread *shardThread, a *activations, q *sequence, kv int) {
	key := s.o + kv*s.h
	value := key + s.KVHeads*s.h
	s.transpose(thread.transposed, a.qkv[value:], q)
	if q.attention < 0 {
		s.transpose(thread.keys, a.qkv[key:], q)
	}
	for head := kv * s.group; head < (kv+1)*s.group; head++ {
		for from := 0; from < q.Own; from += q.piece() {
			to := min(from+q.piece(), q.Own)
			p := s.recall(thread, a, q, head, from, to)
			s.queryBackward(thread, p, a, q, head, key, from, to)
			s.sharedBackward(thread, p, a, q, head, key, value, from, to)
			s.keyBackward(thread, p, a, q, head, key, value, from, to)
		}
	}
}

// recall returns the probabilities of some queries of a head: those that the forward pass
// kept, or the same probabilities computed again.
func (s *shard) recall(thread *shardThread, a *activations, q *sequence, head, from, to int) []float32 {
	if q.attention >= 0 {
		return a.attention[q.attention+(head*q.Own+from)*q.width:]
	}
	for r := from; r < to; r += attentionBlock {
		s.distribute(thread.probabilities[(r-from)*q.width:], thread.keys, a, q, head, r, min(attentionBlock, to-r))
	}
	return thread.probabilities
}

// queryBackward computes, for the queries of a head in [from, to), the gradients of their
// scores, which it leaves in the thread's memory, and the gradients of the queries
// themselves.
func (s *shard) queryBackward(thread *shardThread, p []float32, a *activations, q *sequence, head, key, from, to int) {
	for r := from; r < to; r += attentionBlock {
		m := min(attentionBlock, to-r)
		columns := q.columns(r, m)
		p, dp := p[(r-from)*q.width:], thread.dattention[(r-from)*q.width:]
		s.MatMul(dp, q.width, s.dmixed[(q.First()+r)*s.o+head*s.h:], s.o, 1, thread.transposed, q.width, m, columns, s.h, false)
		for t := range m {
			s.SoftmaxBackward(p[t*q.width:], dp[t*q.width:], columns, s.scale)
		}
		s.alongPath(s.dqkv[(q.First()+r)*s.q+head*s.h:], s.q, dp, a.qkv[key:], q, r, m)
	}
}

// sharedBackward adds the share of some queries of one head to the gradients of keys
// and values of the positions before the sequence's own.
func (s *shard) sharedBackward(thread *shardThread, p []float32, a *activations, q *sequence, head, key, value, from, to int) {
	queries, mixed := a.qkv[(q.First()+from)*s.q+head*s.h:], s.dmixed[(q.First()+from)*s.o+head*s.h:]
	for _, part := range q.Path {
		if part.At == q.Depth() {
			return
		}
		row := part.First * s.q
		s.MatMul(s.dqkv[row+key:], s.q, thread.dattention[part.At:], 1, q.width, queries, s.q, part.N, s.h, to-from, true)
		s.MatMul(s.dqkv[row+value:], s.q, p[part.At:], 1, q.width, mixed, s.o, part.N, s.h, to-from, true)
	}
}

// keyBackward adds the share of some queries of one head to the gradients of the
// sequence's own keys and values. The first queries of a group that see a key set its
// gradients instead.
func (s *shard) keyBackward(thread *shardThread, p []float32, a *activations, q *sequence, head, key, value, from, to int) {
	dp := thread.dattention
	for j := 0; j < to; j += attentionBlock {
		first, row := max(j, from), (q.First()+j)*s.q
		m, k, corner := min(attentionBlock, q.Own-j), to-first, (first-from)*q.width+q.Depth()+j
		more := head%s.group > 0 || first > j
		s.MatMul(s.dqkv[row+key:], s.q, dp[corner:], 1, q.width, a.qkv[(q.First()+first)*s.q+head*s.h:], s.q, m, s.h, k, more)
		s.MatMul(s.dqkv[row+value:], s.q, p[corner:], 1, q.width, s.dmixed[(q.First()+first)*s.o+head*s.h:], s.o, m, s.h, k, more)
	}
}

// rotary holds the cosines and sines of rotary embedding, position after
// position, for as many positions as were needed so far.
type rotary struct {
	half     int       // padded
	inverse  []float64 // radians a position
	cos, sin []float32
	rows     int
}

func newRotary(l *layout) *rotary {
	r := &rotary{half: l.h / 2}
	pairs := l.HeadDim / 2
	root, power := root(l.RopeTheta, pairs), 1.0
	for range pairs {
		r.inverse = append(r.inverse, l.RopeScaling.Frequency(1/power))
		power *= root
	}
	return r
}

// root returns the n-th root of x > 0, exact to the last few bits. math.Pow would do, but
// it calls an exponential whose bits depend on the processor.
func root(x float64, n int) float64 {
	low, high := min(x, 1), max(x, 1)
	for {
		middle := low + (high-low)/2
		if middle <= low || middle >= high {
			return low
		}
		power := 1.0
		for range n {
			power *= middle
		}
		if power > x {
			high = middle
		} else {
			low = middle
		}
	}
}

// reserve makes positions below n usable.
func (r *rotary) reserve(n int) {
	if n <= r.rows {
		return
	}
	n = max(n, 2*r.rows, 64)
	cos, sin := make([]float32, n*r.half), make([]float32, n*r.half)
	copy(cos, r.cos)
	copy(sin, r.sin)
	for position := r.rows; position < n; position++ {
		for i, inverse := range r.inverse {
			s, c := math.Sincos(float64(position) * inverse)
			cos[position*r.half+i], sin[position*r.half+i] = float32(c), float32(s)
		}
	}
	r.cos, r.sin, r.rows = cos, sin, n
}

// at returns the angles of one position.
func (r *rotary) at(position int) (cos, sin []float32) {
	from, to := position*r.half, (position+1)*r.half
	return r.cos[from:to], r.sin[from:to]
}
