package native

// backward adds to g, laid out like the weights, the gradient of a loss whose
// derivatives by log-probabilities and entropies the objective has written.
func (s *shard) backward(g []float32) {
	if s.rows == 0 {
		return
	}
	widest, again := 0, 0
	for _, q := range s.sequences {
		widest = max(widest, q.piece()*q.width)
		if q.attention < 0 {
			again = max(again, s.h*q.width)
		}
	}
	s.dx, s.dh, s.dqkv = s.memory.alloc(s.rows*s.d), s.memory.alloc(s.rows*s.d), s.memory.alloc(s.rows*s.q)
	s.dact, s.dmixed, s.dattention = s.memory.alloc(s.rows*s.f), s.memory.alloc(s.rows*s.o), s.memory.alloc(widest)
	s.keys = s.memory.alloc(again)
	if s.QKNorm {
		s.draw = s.memory.alloc(s.rows * s.q)
	}
	s.outputBackward(g)
	for l := len(s.states) - 1; l >= 0; l-- {
		s.leaveBackward(l, g)
		for _, q := range s.sequences {
			s.attendBackward(&s.states[l], q)
			for t := range q.n {
				r := q.first + t
				cos, sin := s.angles.at(t)
				s.RotateBack(s.dqkv[r*s.q:(r+1)*s.q], cos, sin, s.Heads+s.KVHeads)
			}
		}
		s.enterBackward(l, g)
	}
	for _, q := range s.sequences {
		for t := range q.n {
			r, at := q.first+t, s.embed+int(q.tokens[t])*s.d
			s.Add(g[at:at+s.d], s.dx[r*s.d:(r+1)*s.d])
		}
	}
}

// outputBackward turns the output into its gradient and starts dx.
func (s *shard) outputBackward(g []float32) {
	if s.ValueHead {
		s.valuesGradient(g)
	} else {
		s.tokensGradient()
	}
	s.linearBackward(s.head, s.v, s.d, s.dh, s.logits, s.normed, g)
	clear(s.dx)
	s.normBackward(s.norm, s.dh, s.x, s.inverse, g)
}

// tokensGradient turns logits into their gradient.
func (s *shard) tokensGradient() {
	for _, q := range s.sequences {
		for t := range q.n {
			r := q.first + t
			x, o := s.logits[r*s.v:(r+1)*s.v], s.outcomes[r]
			d, e := q.scale*s.gradient[r], q.scale*s.entropyGradient[r]
			if d == 0 && e == 0 { // masked
				clear(x)
				continue
			}
			s.logitsGradient(&q, t, x, o, -d, -e)
			x[q.tokens[t+1]] += d
		}
	}
}

// logitsGradient is LogitsGradient for position t; tokens that it may not choose
// have no part in it.
func (s *shard) logitsGradient(q *sequence, t int, x []float32, o outcome, a, b float32) {
	if !q.restricted(t) {
		s.LogitsGradient(x, s.VocabSize, q.scale, o.most, o.logSum, o.entropy, a, b)
		return
	}
	n := s.choice.among(q.allowed[t], s.VocabSize)
	s.LogitsGradient(s.choice.gather(x), n, q.scale, o.most, o.logSum, o.entropy, a, b)
	s.choice.scatter(x)
}

// leaveBackward is the gradient of leave: from dx, the gradient of the stream
// after the layer, to that of the stream in its middle and to dmixed.
func (s *shard) leaveBackward(layer int, g []float32) {
	a, at := &s.states[layer], &s.layers[layer]
	s.linearBackward(at.down, s.d, s.f, s.dact, s.dx, a.act, g)
	s.SwiGLUBackward(a.gateUp, s.dact, s.rows, s.f)
	s.linearBackward(at.gateUp, 2*s.f, s.d, s.dh, a.gateUp, a.normed2, g)
	s.normBackward(at.norm2, s.dh, a.middle, a.inverse2, g)
	s.linearBackward(at.out, s.d, s.o, s.dmixed, s.dx, a.mixed, g)
}

// enterBackward is the gradient of enter: from dqkv, turned back, to dx.
func (s *shard) enterBackward(layer int, g []float32) {
	a, at, d := &s.states[layer], &s.layers[layer], s.dqkv
	if s.QKNorm {
		s.headNormBackward(layer, g)
		d = s.draw
	}
	if s.QKVBias {
		for r := range s.rows {
			s.Add(g[at.bias:at.bias+s.q], d[r*s.q:(r+1)*s.q])
		}
	}
	s.linearBackward(at.qkv, s.q, s.d, s.dh, d, a.normed1, g)
	s.normBackward(at.norm1, s.dh, a.x, a.inverse1, g)
}

// headNormBackward takes dqkv through the norms of queries and keys to draw.
func (s *shard) headNormBackward(layer int, g []float32) {
	a, at := &s.states[layer], &s.layers[layer]
	keys, values, heads := s.o, s.o+s.KVHeads*s.h, s.Heads+s.KVHeads
	qNorm, kNorm := s.vectorAt(at.qNorm, s.h), s.vectorAt(at.kNorm, s.h)
	clear(s.draw)
	for r := range s.rows {
		d, raw, to, inverse := s.dqkv[r*s.q:], a.raw[r*s.q:], s.draw[r*s.q:], a.inverseQK[r*heads:]
		s.NormBackward(d, raw, qNorm, inverse, to, g[at.qNorm:at.qNorm+s.h], s.Heads, s.HeadDim)
		s.NormBackward(d[keys:], raw[keys:], kNorm, inverse[s.Heads:], to[keys:], g[at.kNorm:at.kNorm+s.h], s.KVHeads, s.HeadDim)
		copy(to[values:s.q], d[values:s.q])
	}
}

// linearBackward sets dIn, the gradient of a linear
// layer's input, and adds to g that of its weights [out, in], from dOut and in.
func (s *shard) linearBackward(offset, out, in int, dIn, dOut, input, g []float32) {
	s.MatMulPacked(dIn, in, dOut, out, s.parameters.backward[offset:], s.rows, in, out, false)
	s.MatMul(g[offset:], in, dOut, 1, out, input, in, out, in, s.rows, true)
}

// normBackward adds to dx and g the gradients of a norm of the stream.
func (s *shard) normBackward(offset int, dh, x, inverse, g []float32) {
	s.NormBackward(dh, x, s.vectorAt(offset, s.d), inverse, s.dx, g[offset:offset+s.d], s.rows, s.HiddenSize)
}
