package native

import "github.com/fulgurite/fulgurite/model/engine/native/kernel"

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
