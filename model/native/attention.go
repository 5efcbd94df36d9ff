package native

// attentionBlock is how many queries are multiplied at once. Keys beyond a
// block's last query are not touched, so about half the work is saved.
const attentionBlock = 16

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
		s.transpose(a.qkv[key:], q)
		for head := kv * s.group; head < (kv+1)*s.group; head++ {
			p := a.attention[q.attention+head*q.n*q.width:]
			for r := 0; r < q.n; r += attentionBlock {
				m := min(attentionBlock, q.n-r)
				columns := r + attentionBlock
				s.MatMul(p[r*q.width:], q.width, a.qkv[at+r*s.q+head*s.h:], s.q, 1, s.transposed, q.width, m, columns, s.h, false)
				for t := r; t < r+m; t++ {
					s.Softmax(p[t*q.width:t*q.width+columns], t+1, s.scale)
				}
				s.MatMul(a.mixed[(q.first+r)*s.o+head*s.h:], s.o, p[r*q.width:], q.width, 1, a.qkv[value:], s.q, m, s.h, min(columns, q.n), false)
			}
		}
	}
}

// transpose sets s.transposed to the H×width transpose of a head's rows. The
// columns beyond the sequence are zeroed, lest something not finite lies there.
func (s *shard) transpose(rows []float32, q sequence) {
	to := s.transposed
	for t := range q.n {
		for i, x := range rows[t*s.q : t*s.q+s.h] {
			to[i*q.width+t] = x
		}
	}
	for i := range s.h {
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
		s.transpose(a.qkv[value:], q)
		for head := kv * s.group; head < (kv+1)*s.group; head++ {
			s.queryBackward(a, q, head, key)
			s.keyBackward(a, q, head, key, value)
		}
	}
}

// queryBackward computes the gradients of a head's scores, in s.dattention, and
// of its queries.
func (s *shard) queryBackward(a *activations, q sequence, head, key int) {
	p, dp := a.attention[q.attention+head*q.n*q.width:], s.dattention
	for r := 0; r < q.n; r += attentionBlock {
		m := min(attentionBlock, q.n-r)
		columns := r + attentionBlock
		s.MatMul(dp[r*q.width:], q.width, s.dmixed[(q.first+r)*s.o+head*s.h:], s.o, 1, s.transposed, q.width, m, columns, s.h, false)
		for t := r; t < r+m; t++ {
			s.SoftmaxBackward(p[t*q.width:], dp[t*q.width:], columns, s.scale)
		}
		s.MatMul(s.dqkv[(q.first+r)*s.q+head*s.h:], s.q, dp[r*q.width:], q.width, 1, a.qkv[key:], s.q, m, s.h, min(columns, q.n), false)
	}
}

// keyBackward adds one query head's share to the gradients of its keys and
// values; the first head of a group sets them.
func (s *shard) keyBackward(a *activations, q sequence, head, key, value int) {
	p, dp := a.attention[q.attention+head*q.n*q.width:], s.dattention
	more := head%s.group > 0
	for j := 0; j < q.n; j += attentionBlock {
		m, k, corner := min(attentionBlock, q.n-j), q.n-j, j*q.width+j
		s.MatMul(s.dqkv[key+j*s.q:], s.q, dp[corner:], 1, q.width, a.qkv[(q.first+j)*s.q+head*s.h:], s.q, m, s.h, k, more)
		s.MatMul(s.dqkv[value+j*s.q:], s.q, p[corner:], 1, q.width, s.dmixed[(q.first+j)*s.o+head*s.h:], s.o, m, s.h, k, more)
	}
}
