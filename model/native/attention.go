package native

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

// piece is how many queries the backward pass takes at once: all, or some blocks
// of them.
func (q *sequence) piece() int {
	if q.attention >= 0 {
		return q.n
	}
	return max(1, pieceNumbers/q.width/attentionBlock) * attentionBlock
}

// attend mixes the values of one sequence: causal soft-max attention, where
// query heads in groups share a key and a value head.
func (s *shard) attend(a *activations, q sequence) {
	if q.n == 0 {
		return
	}
	at := q.first * s.q
	for kv := range s.KVHeads {
		key := at + s.o + kv*s.h
		value := key + s.KVHeads*s.h
		transpose(s.transposed, a.qkv[key:], s.layout, q)
		for head := kv * s.group; head < (kv+1)*s.group; head++ {
			for r := 0; r < q.n; r += attentionBlock {
				p, m := s.probabilities, min(attentionBlock, q.n-r)
				if q.attention >= 0 {
					p = a.attention[q.attention+(head*q.n+r)*q.width:]
				}
				s.distribute(p, s.transposed, a, q, head, r, m)
				s.MatMul(a.mixed[(q.first+r)*s.o+head*s.h:], s.o, p, q.width, 1, a.qkv[value:], s.q, m, s.h, min(r+attentionBlock, q.n), false)
			}
		}
	}
}

// distribute sets p to the probabilities that a block of m queries from r on gives
// to keys.
func (s *shard) distribute(p, keys []float32, a *activations, q sequence, head, r, m int) {
	columns := r + attentionBlock
	s.MatMul(p, q.width, a.qkv[(q.first+r)*s.q+head*s.h:], s.q, 1, keys, q.width, m, columns, s.h, false)
	for t := range m {
		s.Softmax(p[t*q.width:t*q.width+columns], r+t+1, s.scale)
	}
}

// transpose sets to to the H×width transpose of a head's rows. The columns beyond
// the sequence are zeroed, lest something not finite lies there.
func transpose(to, rows []float32, l *layout, q sequence) {
	for t := range q.n {
		for i, x := range rows[t*l.q : t*l.q+l.h] {
			to[i*q.width+t] = x
		}
	}
	for i := range l.h {
		clear(to[i*q.width+q.n : (i+1)*q.width])
	}
}

// attendBackward turns s.dmixed into s.dqkv for one sequence.
func (s *shard) attendBackward(a *activations, q sequence) {
	if q.n == 0 {
		return
	}
	at := q.first * s.q
	for kv := range s.KVHeads {
		key := at + s.o + kv*s.h
		value := key + s.KVHeads*s.h
		transpose(s.transposed, a.qkv[value:], s.layout, q)
		if q.attention < 0 {
			transpose(s.keys, a.qkv[key:], s.layout, q)
		}
		for head := kv * s.group; head < (kv+1)*s.group; head++ {
			for from := 0; from < q.n; from += q.piece() {
				to := min(from+q.piece(), q.n)
				p := s.recall(a, q, head, from, to)
				s.queryBackward(p, a, q, head, key, from, to)
				s.keyBackward(p, a, q, head, key, value, from, to)
			}
		}
	}
}

// recall returns the probabilities of some queries of a head: those that the
// forward pass kept, or the same computed again.
func (s *shard) recall(a *activations, q sequence, head, from, to int) []float32 {
	if q.attention >= 0 {
		return a.attention[q.attention+(head*q.n+from)*q.width:]
	}
	for r := from; r < to; r += attentionBlock {
		s.distribute(s.probabilities[(r-from)*q.width:], s.keys, a, q, head, r, min(attentionBlock, to-r))
	}
	return s.probabilities
}

// queryBackward computes the gradients of a head's scores, in s.dattention, and
// of its queries, from one to another.
func (s *shard) queryBackward(p []float32, a *activations, q sequence, head, key, from, to int) {
	for r := from; r < to; r += attentionBlock {
		m := min(attentionBlock, to-r)
		columns := r + attentionBlock
		p, dp := p[(r-from)*q.width:], s.dattention[(r-from)*q.width:]
		s.MatMul(dp, q.width, s.dmixed[(q.first+r)*s.o+head*s.h:], s.o, 1, s.transposed, q.width, m, columns, s.h, false)
		for t := range m {
			s.SoftmaxBackward(p[t*q.width:], dp[t*q.width:], columns, s.scale)
		}
		s.MatMul(s.dqkv[(q.first+r)*s.q+head*s.h:], s.q, dp, q.width, 1, a.qkv[key:], s.q, m, s.h, min(columns, q.n), false)
	}
}

// keyBackward adds the share of some queries of one head to the gradients of keys
// and values; the first queries of a group to see a key set them.
func (s *shard) keyBackward(p []float32, a *activations, q sequence, head, key, value, from, to int) {
	dp := s.dattention
	for j := 0; j < to; j += attentionBlock {
		first := max(j, from)
		m, k, corner := min(attentionBlock, q.n-j), to-first, (first-from)*q.width+j
		more := head%s.group > 0 || first > j
		s.MatMul(s.dqkv[key+j*s.q:], s.q, dp[corner:], 1, q.width, a.qkv[(q.first+first)*s.q+head*s.h:], s.q, m, s.h, k, more)
		s.MatMul(s.dqkv[value+j*s.q:], s.q, p[corner:], 1, q.width, s.dmixed[(q.first+first)*s.o+head*s.h:], s.o, m, s.h, k, more)
	}
}
