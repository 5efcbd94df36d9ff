package native

import (
	"slices"

	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// gradientRows is how many rows of a matrix's gradient a thread computes at once.
const gradientRows = 64

// backward adds to g, laid out like the weights, the gradient of a loss whose
// derivatives by log-probabilities and entropies the objective has written.
func (s *shard) backward(g []float32) {
	if s.rows == 0 {
		return
	}
	s.outputBackward(g)
	for l := len(s.states) - 1; l >= 0; l-- {
		if s.recomputes {
			s.layer(l, nil)
		}
		s.leaveBackward(l, g)
		a := &s.states[l]
		s.eachTreesHead(func(thread *shardThread, q *sequence, kv int) { s.attendBackward(thread, a, q, kv) })
		s.eachPlace(func(r int, at reader) {
			cos, sin := s.angles.at(at.t)
			s.RotateBack(s.dqkv[r*s.q:(r+1)*s.q], cos, sin, s.Heads+s.KVHeads)
		})
		s.enterBackward(l, g)
	}
	if s.adapter != nil { // all other rows of the embedding are frozen
		s.tokenInputBackward(g)
		return
	}
	for r := range s.rows {
		of := s.readers.of(r)[0]
		at := s.embed + int(of.q.tokens[of.t])*s.d
		s.Add(g[at:at+s.d], s.dx[r*s.d:(r+1)*s.d])
	}
}

// outputBackward replaces the output by its gradient, chunk by chunk, and sets dx from
// it.
func (s *shard) outputBackward(g []float32) {
	for first := 0; first < s.rows; first += s.chunk {
		rows := min(s.chunk, s.rows-first)
		if s.adapter == nil {
			s.someOutputBackward(g, first, first, rows)
			continue
		}
		// Nothing is learned from positions that no loss depends on.
		clear(s.dh[first*s.d : (first+rows)*s.d])
		for from, to := s.next(first, first+rows, s.isTrained); from < to; from, to = s.next(to, first+rows, s.isTrained) {
			s.someOutputBackward(g, first, from, to-from)
		}
	}
	clear(s.dx)
	s.normBackward(s.parameters.norm, s.dh, s.x, s.inverse, g)
}

// someOutputBackward does the work of outputBackward for rows positions from from on,
// which lie in the chunk that begins at first.
func (s *shard) someOutputBackward(g []float32, first, from, rows int) {
	if s.chunk < s.rows {
		first = from
		s.output(s.logits, s.tokenLogits, from, rows)
	}
	logits, dh, normed := s.logits[(from-first)*s.v:], s.dh[from*s.d:], s.normed[from*s.d:]
	if s.ValueHead {
		s.valuesGradient(g, logits, from, rows)
	} else {
		s.tokensGradient(logits, from, rows)
	}
	if s.trainsHead() {
		s.valueHeadBackward(dh, logits, normed, g, rows)
		return
	}
	own := s.tokenLogits[(from-first)*s.tokenWidth():]
	s.takeTokenGradients(own, logits, rows)
	s.linearBackward(s.head, dh, logits, normed, g, rows)
	s.tokenOutputBackward(dh, own, normed, g, rows)
}

// tokensGradient turns the logits of some rows into their gradient.
func (s *shard) tokensGradient(logits []float32, first, rows int) {
	s.eachPosition(logits, first, rows, func(thread *shardThread, r int, logits []float32) {
		s.positionGradient(thread, logits, s.readers.of(r))
	})
}

// positionGradient replaces the logits of a position by the sum of the gradients of its
// readers. It computes one gradient for consecutive readers that choose alike.
func (s *shard) positionGradient(thread *shardThread, logits []float32, all []reader) {
	for len(all) > 0 && s.isMasked(all[len(all)-1]) {
		all = all[:len(all)-1]
	}
	if len(all) == 0 {
		clear(logits)
		return
	}
	for before := 0; ; {
		n := 1
		for n < len(all) && all[n].choosesLike(all[0]) {
			n++
		}
		alike := all[:n]
		if all = all[n:]; len(all) == 0 {
			s.alikeGradient(thread, logits, alike)
			if before > 0 {
				s.Add(logits, thread.sum)
			}
			return
		}
		if !slices.ContainsFunc(alike, s.isTrained) {
			continue
		}
		thread.part = append(thread.part[:0], logits...)
		s.alikeGradient(thread, thread.part, alike)
		if before++; before > 1 {
			s.Add(thread.sum, thread.part)
		} else {
			thread.sum = append(thread.sum[:0], thread.part...)
		}
	}
}

// isTrained reports whether the loss depends on the outcome of a reader.
func (s *shard) isTrained(r reader) bool { return !s.isMasked(r) }

// isMasked reports whether the loss does not depend on the outcome of a reader.
func (s *shard) isMasked(r reader) bool {
	at := r.answer()
	return s.gradient[at] == 0 && s.entropyGradient[at] == 0
}

// alikeGradient turns logits into the gradient of readers that choose alike.
func (s *shard) alikeGradient(thread *shardThread, logits []float32, alike []reader) {
	q, t, o := alike[0].q, alike[0].t, s.outcomes[alike[0].answer()]
	var d, e float32
	for _, r := range alike {
		d += q.scale * s.gradient[r.answer()]
		e += q.scale * s.entropyGradient[r.answer()]
	}
	s.logitsGradient(thread, q, t, logits, o, -d, -e)
	for _, r := range alike {
		logits[r.q.tokens[r.t+1]] += q.scale * s.gradient[r.answer()]
	}
}

// logitsGradient applies LogitsGradient to the logits of position t. It leaves out the
// tokens that the position may not choose.
func (s *shard) logitsGradient(thread *shardThread, q *sequence, t int, x []float32, o outcome, a, b float32) {
	if !q.restricted(t) {
		s.LogitsGradient(x, s.VocabSize, q.scale, o.most, o.logSum, o.entropy, a, b)
		s.fillUnused(x, 0) // exactly, so that their rows of a tied embedding stay as they are
		return
	}
	n := thread.choice.among(q.allowed[t], s.VocabSize)
	s.LogitsGradient(thread.choice.gather(x), n, q.scale, o.most, o.logSum, o.entropy, a, b)
	thread.choice.scatter(x)
}

// leaveBackward computes the gradient of feedForward: from dx, the gradient of the stream
// after the layer, it computes dmixed and the gradient of the stream in the layer's
// middle.
func (s *shard) leaveBackward(layer int, g []float32) {
	a, at := &s.states[layer], &s.layers[layer]
	s.linearBackward(at.down, s.dact, s.dx, a.act, g, s.rows)
	s.adaptBackward(layer, adaptedDown, s.dact, s.dx, a.act, g)
	s.activateBackward(a.gateUp, s.dact, s.rows)
	s.linearBackward(at.gateUp, s.dh, a.gateUp, a.normed2, g, s.rows)
	s.adaptBackward(layer, adaptedGateUp, s.dh, a.gateUp, a.normed2, g)
	s.normBackward(at.norm2, s.dh, a.middle, a.inverse2, g)
	s.linearBackward(at.out, s.dmixed, s.dx, a.mixed, g, s.rows)
	s.adaptBackward(layer, adaptedOut, s.dmixed, s.dx, a.mixed, g)
}

// enterBackward computes the gradient of project: from dqkv, whose rotation is undone
// already, it computes dx.
func (s *shard) enterBackward(layer int, g []float32) {
	a, at, d := &s.states[layer], &s.layers[layer], s.dqkv
	if s.QKNorm {
		s.headNormBackward(layer, g)
		d = s.dRaw
	}
	if s.QKVBias && s.adapter == nil {
		for r := range s.rows {
			s.Add(g[at.bias:at.bias+s.q], d[r*s.q:(r+1)*s.q])
		}
	}
	if _, trained := s.tokens(); layer == 0 && s.adapter != nil && !trained { // the gradient of the embedding is not needed
		s.adaptBackward(layer, adaptedQKV, nil, d, a.normed1, g)
		return
	}
	s.linearBackward(at.qkv, s.dh, d, a.normed1, g, s.rows)
	s.adaptBackward(layer, adaptedQKV, s.dh, d, a.normed1, g)
	s.normBackward(at.norm1, s.dh, a.x, a.inverse1, g)
}

// headNormBackward computes dRaw, the gradient of queries, keys and values before the
// norms of queries and keys, from dqkv, the gradient after these norms.
func (s *shard) headNormBackward(layer int, g []float32) {
	a, at := &s.states[layer], &s.layers[layer]
	keys, values, heads := s.o, s.o+s.KVHeads*s.h, s.Heads+s.KVHeads
	qNorm, kNorm := s.vectorAt(at.qNorm, s.h), s.vectorAt(at.kNorm, s.h)
	clear(s.dRaw)
	s.eachFrozen(func(thread *shardThread, first, last int) {
		dQuery, dKey := s.vectorGradient(thread, g, at.qNorm, s.h), s.vectorGradient(thread, g, at.kNorm, s.h)
		for r := first; r < last; r++ {
			d, raw, to, inverse := s.dqkv[r*s.q:], a.raw[r*s.q:], s.dRaw[r*s.q:], a.inverseQK[r*heads:]
			s.NormBackward(d, raw, qNorm, inverse, to, dQuery, s.Heads, s.HeadDim)
			s.NormBackward(d[keys:], raw[keys:], kNorm, inverse[s.Heads:], to[keys:], dKey, s.KVHeads, s.HeadDim)
			copy(to[values:s.q], d[values:s.q])
		}
	})
}

// linearBackward computes dIn, the gradient of linear's input, from dOut, the gradient of
// its output. It adds the gradient of the weights to g, unless they are frozen.
func (s *shard) linearBackward(m matrix, dIn, dOut, in, g []float32, rows int) {
	if s.split == nil {
		s.MatMulPanelsRows(dIn, m.in, dOut, m.out, s.panels.From(m.offset), rows, m.in, m.out, 0, m.in, s.threads[0].buffer)
		if s.adapter == nil {
			s.MatMul(g[m.offset:], m.in, dOut, 1, m.out, in, m.in, m.out, m.in, rows, true)
		}
		return
	}
	step := s.panelsOfPart(m.in) * kernel.PanelWidth
	columns, blocks := (m.in+step-1)/step, (m.out+gradientRows-1)/gradientRows
	if s.adapter != nil {
		blocks = 0
	}
	s.split.run(columns+blocks, func(worker, i int) {
		thread := &s.threads[worker]
		if i < columns {
			s.MatMulPanelsRows(dIn, m.in, dOut, m.out, s.panels.From(m.offset), rows, m.in, m.out, i*step, min((i+1)*step, m.in), thread.buffer)
			return
		}
		first := (i - columns) * gradientRows
		s.weightGradient(thread, g[m.offset+first*m.in:], dOut[first:], m.out, in, m.in, min(gradientRows, m.out-first), rows)
	})
}

// weightGradient adds to g, which is n×width, the product of the first n columns of dOut,
// transposed, with in; both have rows rows. It first copies these columns of dOut so that
// each is contiguous: in dOut, numbers of a column are outRow apart, and each would be in
// another page.
func (s *shard) weightGradient(thread *shardThread, g, dOut []float32, outRow int, in []float32, width, n, rows int) {
	s.Transpose(thread.across, rows, dOut, outRow, rows, n)
	s.MatMul(g, width, thread.across, rows, 1, in, width, n, width, rows, true)
}

// eachFrozen calls do for ranges that cover all positions. It uses several threads only
// if the weights are frozen whose gradient do sums up over the positions.
func (s *shard) eachFrozen(do func(thread *shardThread, first, last int)) {
	if s.adapter == nil {
		do(&s.threads[0], 0, s.rows)
		return
	}
	s.eachRange(0, s.rows, do)
}

// vectorGradient returns the part of g for the gradient of n weights at offset. For
// frozen weights it returns memory that is never read.
func (s *shard) vectorGradient(thread *shardThread, g []float32, offset, n int) []float32 {
	if s.adapter != nil {
		return thread.unused[:n]
	}
	return g[offset : offset+n]
}

// normBackward adds to dx and g the gradients of a norm of the stream.
func (s *shard) normBackward(offset int, dh, x, inverse, g []float32) {
	w := s.vectorAt(offset, s.d)
	s.eachFrozen(func(thread *shardThread, first, last int) {
		at := first * s.d
		s.NormBackward(dh[at:], x[at:], w, inverse[first:], s.dx[at:], s.vectorGradient(thread, g, offset, s.d), last-first, s.HiddenSize)
	})
}
