package native

import (
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/native/kernel"
)

// shardPositions is how many positions a shard gathers before the next begins:
// few enough that a small model's activations stay in the second-level cache.
const shardPositions = 256

// sequence is a row of a batch in a shard. Its n positions predict tokens[1:].
type sequence struct {
	row       int // of the batch
	tokens    []int32
	allowed   []model.TokenSet
	n         int
	scale     float32 // 1/temperature
	first     int     // its first position in the shard
	attention int     // its offset in activations.attention; -1 if it is computed again
	width     int     // of a row of attention
}

// restricted reports whether position t chooses among some tokens alone.
func (q *sequence) restricted(t int) bool { return q.allowed != nil && q.allowed[t] != nil }

// cut distributes rows over shards, in their order, by their lengths alone.
func (l *layout) cut(rows []model.Row) ([][]sequence, error) {
	var shards [][]sequence
	positions, attention := 0, 0
	for i, row := range rows {
		scale, err := l.checkRow(row)
		if err != nil {
			return nil, rowError(i, err)
		}
		n := len(row.Tokens) - 1
		if len(shards) == 0 || positions > 0 && positions+n > shardPositions {
			shards, positions, attention = append(shards, nil), 0, 0
		}
		s := sequence{row: i, tokens: row.Tokens, allowed: row.Allowed, n: n, scale: scale, first: positions, attention: attention, width: kernel.Pad(n)}
		if n > keepPositions {
			s.attention = -1
		} else {
			attention += l.Heads * n * s.width
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], s)
		positions += n
	}
	return shards, nil
}

// shard runs some sequences forward and back. Its memory is used again for the
// next.
type shard struct {
	*pass
	sequences []sequence
	rows      int
	states    []activations
	x         []float32 // R·D, after the last layer
	inverse   []float32 // R
	normed    []float32 // R·D
	logits    []float32 // R·V; the backward pass makes them their gradient
	outcomes  []outcome

	logprobs, entropies              []float32 // R; of a critic, values and zeros
	gradient, entropyGradient        []float32 // R
	dx, dh, dqkv, draw, dact, dmixed []float32
	transposed, keys                 []float32 // heads that lie across
	probabilities, dattention        []float32 // pieces of attention

	choice choice
	memory arena
}

// load lays out memory for sequences.
func (s *shard) load(sequences []sequence) {
	s.memory.reset()
	s.sequences = sequences
	last := sequences[len(sequences)-1]
	s.rows = last.first + last.n
	widest, attention, again := 0, 0, 0
	for _, q := range sequences {
		widest = max(widest, q.width)
		if q.attention < 0 {
			again = max(again, q.piece()*q.width)
		} else {
			attention = q.attention + s.Heads*q.n*q.width
		}
	}
	if s.states == nil {
		s.states = make([]activations, s.Layers)
	}
	for l := range s.states {
		s.states[l] = s.takeActivations(&s.memory, s.rows)
		s.states[l].attention = s.memory.alloc(attention)
	}
	s.x, s.inverse, s.normed = s.memory.alloc(s.rows*s.d), s.memory.alloc(s.rows), s.memory.alloc(s.rows*s.d)
	s.logits = s.memory.alloc(s.rows * s.v)
	s.logprobs, s.entropies = s.memory.alloc(s.rows), s.memory.alloc(s.rows)
	s.gradient, s.entropyGradient = s.memory.alloc(s.rows), s.memory.alloc(s.rows)
	s.transposed, s.probabilities = s.memory.alloc(s.h*widest), s.memory.alloc(again)
	if cap(s.outcomes) < s.rows {
		s.outcomes = make([]outcome, s.rows)
	}
	s.outcomes = s.outcomes[:s.rows]
}

// forward computes log-probabilities and entropies, or else values, of all
// positions.
func (s *shard) forward() {
	if s.rows == 0 {
		return
	}
	for _, q := range s.sequences {
		for t := range q.n {
			copy(s.states[0].x[(q.first+t)*s.d:], s.embedding(q.tokens[t]))
		}
	}
	for l := range s.states {
		a, next := &s.states[l], s.x
		if l+1 < len(s.states) {
			next = s.states[l+1].x
		}
		s.project(l, a, s.rows)
		for _, q := range s.sequences {
			for t := range q.n {
				s.rotate(a.qkv, q.first+t, t)
			}
			s.attend(a, q)
		}
		s.feedForward(l, a, next, s.rows)
	}
	s.output(s.logits, s.normed, s.x, s.inverse, s.rows)
	if s.ValueHead {
		s.values()
		return
	}
	for _, q := range s.sequences {
		for t := range q.n {
			r := q.first + t
			s.outcomes[r] = s.outcome(&q, t, s.logits[r*s.v:(r+1)*s.v])
			s.logprobs[r], s.entropies[r] = s.outcomes[r].logprob, s.outcomes[r].entropy
		}
	}
}

// outcome is what the logits of position t say of the token that follows.
func (s *shard) outcome(q *sequence, t int, logits []float32) outcome {
	token := q.tokens[t+1]
	if !q.restricted(t) {
		return s.tokenOutcome(logits, s.VocabSize, int(token), q.scale)
	}
	n := s.choice.among(q.allowed[t], s.VocabSize)
	return s.tokenOutcome(s.choice.gather(logits), n, s.choice.indexOf(token), q.scale)
}

// ask has the objective write the gradients of all positions.
func (s *shard) ask(objective model.Objective) {
	clear(s.gradient)
	clear(s.entropyGradient)
	for _, q := range s.sequences {
		from, to := q.first, q.first+q.n
		objective(q.row, s.logprobs[from:to:to], s.entropies[from:to:to], s.gradient[from:to:to], s.entropyGradient[from:to:to])
	}
}
