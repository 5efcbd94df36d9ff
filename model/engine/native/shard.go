package native

import (
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// shard runs some sequences forward and back. Its memory is used again for the
// next.
type shard struct {
	*pass
	sequences  []sequence
	trees      []int // indices of the sequences that share nothing with earlier ones
	rows       int
	readers    readers
	training   bool          // a backward pass follows
	recomputes bool          // the backward pass computes activations again; only each layer's x is kept
	states     []activations // of the layers; if they are not kept, all layers share the memory of all but x
	x          []float32     // R·D, after the last layer
	inverse    []float32     // R
	normed     []float32     // R·D
	// logits holds the logits of a chunk of positions, chunk·V; the backward pass
	// replaces them by their gradient. If there are several chunks, it computes them
	// again.
	logits      []float32
	tokenLogits []float32 // chunk·tokenWidth, those of trained tokens, and their gradient
	chunk       int
	outcomes    []outcome

	logprobs, entropies              []float32 // for all sequences' positions; for a critic, values and zeros
	gradient, entropyGradient        []float32 // likewise
	dx, dh, dqkv, dRaw, dact, dmixed []float32
	dlow                             []float32 // like activations.low

	threads []shardThread // one for each thread that works on the shard

	keepNumbers, logitNumbers int // the constants of these names; tests change them
	memory                    arena
}

// shardThread is the memory of one thread.
type shardThread struct {
	transposed, keys          []float32 // transposed heads
	probabilities, dattention []float32 // pieces of attention
	buffer                    []float32 // of MatMulPanelsRows
	across                    []float32 // some columns of a gradient, transposed
	unused                    []float32 // receives the gradients of frozen vectors
	choice                    choice
	// sum and part are gradients of logits; they are allocated when readers of a position
	// choose differently.
	sum, part []float32
}

const (
	// keepNumbers is how many numbers of activations are kept for the backward pass. If a
	// shard has more, as only long sequences of large models have, each layer computes
	// its own again, to the same bits.
	keepNumbers = 1 << 27
	// logitNumbers is about how many logits exist at once.
	logitNumbers = 1 << 24
)

func newShard(p *pass) *shard {
	s := &shard{
		pass: p, states: make([]activations, p.Layers), threads: make([]shardThread, 1),
		keepNumbers: keepNumbers, logitNumbers: logitNumbers,
	}
	if p.split != nil {
		s.threads = make([]shardThread, p.split.threads)
	}
	return s
}

// load lays out memory for sequences; training says that a backward pass follows.
func (s *shard) load(sequences []sequence, training bool) {
	s.sequences, s.training = sequences, training
	s.rows, s.trees = 0, s.trees[:0]
	attention := 0
	for i, q := range sequences {
		s.rows += q.Own
		if q.Depth() == 0 {
			s.trees = append(s.trees, i)
		}
		if q.attention >= 0 {
			attention = q.attention + s.Heads*q.Own*q.width
		}
	}
	s.chunk = min(s.rows, max(kernel.Lanes, s.logitNumbers/s.v))
	var one arena // counts the memory of one layer
	s.takeActivations(&one, s.rows)
	s.recomputes = training && s.Layers*(one.used+attention) > s.keepNumbers
	s.memory.layOut(func() { s.takeMemory(attention) })
	s.outcomes = slices.Grow(s.outcomes[:0], s.answers())[:s.answers()]
	s.readers.load(sequences, s.rows)
}

// answers returns how many positions the sequences have. Shared positions count once for
// each sequence.
func (s *shard) answers() int { return s.sequences[len(s.sequences)-1].end() }

// takeMemory allocates the memory that load lays out.
func (s *shard) takeMemory(attention int) {
	a, rows := &s.memory, s.rows
	for l := range s.states {
		switch {
		case l == 0 || s.training && !s.recomputes:
			s.states[l] = s.takeActivations(a, rows)
			s.states[l].attention = a.alloc(attention)
		default:
			s.states[l] = s.states[0]
			if s.training {
				s.states[l].x = a.alloc(rows * s.d)
			}
		}
	}
	s.x, s.inverse, s.normed = a.alloc(rows*s.d), a.alloc(rows), a.alloc(rows*s.d)
	s.logits, s.tokenLogits = a.alloc(s.chunk*s.v), a.alloc(s.chunk*s.tokenWidth())
	answers := s.answers()
	s.logprobs, s.entropies = a.alloc(answers), a.alloc(answers)
	s.gradient, s.entropyGradient = a.alloc(answers), a.alloc(answers)
	widest, piece, again := 0, 0, 0
	for _, q := range s.sequences {
		widest, piece = max(widest, q.width), max(piece, q.piece()*q.width)
		if q.attention < 0 {
			again = max(again, q.piece()*q.width)
		}
	}
	for i := range s.threads {
		t := &s.threads[i]
		t.transposed, t.probabilities = a.alloc(s.h*widest), a.alloc(again)
		if s.training {
			t.keys, t.dattention = a.alloc(s.h*widest), a.alloc(piece)
			t.buffer, t.across = a.alloc(kernel.RowsBuffer), a.alloc(gradientRows*rows)
			if s.adapter != nil {
				t.unused = a.alloc(max(s.d, s.h))
			}
		}
	}
	if s.training {
		s.dx, s.dh, s.dqkv = a.alloc(rows*s.d), a.alloc(rows*s.d), a.alloc(rows*s.q)
		s.dact, s.dmixed = a.alloc(rows*s.f), a.alloc(rows*s.o)
		if s.QKNorm {
			s.dRaw = a.alloc(rows * s.q)
		}
		if s.adapter != nil {
			s.dlow = a.alloc(rows * s.adapter.width)
		}
	}
}

// forward computes log-probabilities and entropies of all positions, or their values for
// a critic.
func (s *shard) forward() {
	if s.rows == 0 {
		return
	}
	s.eachPlace(func(r int, at reader) { s.embedToken(s.states[0].x[r*s.d:], at.q.tokens[at.t]) })
	for l := range s.states {
		next := s.x
		if l+1 < len(s.states) {
			next = s.states[l+1].x
		}
		s.layer(l, next)
	}
	s.norm(s.parameters.norm, s.normed, s.x, s.inverse, s.rows)
	clear(s.logprobs)
	clear(s.entropies)
	for first := 0; first < s.rows; first += s.chunk {
		s.outcomesOf(first, min(s.chunk, s.rows-first))
	}
}

// outcomesOf computes the outcomes that are needed of a chunk of rows positions from first
// on, or their values for a critic.
func (s *shard) outcomesOf(first, rows int) {
	if s.ValueHead {
		s.output(s.logits, s.tokenLogits, first, rows)
		s.values(first, rows)
		return
	}
	needed := func(r reader) bool { return r.q.needs(r.t) }
	for from, to := s.next(first, first+rows, needed); from < to; from, to = s.next(to, first+rows, needed) {
		logits, own := s.logits[(from-first)*s.v:], s.tokenLogits[(from-first)*s.tokenWidth():]
		s.output(logits, own, from, to-from)
		s.eachPosition(logits, from, to-from, s.read)
	}
}

// next returns the first range of positions, from first on and before last, each with a
// reader that counts. The range may include short gaps.
func (s *shard) next(first, last int, counts func(reader) bool) (from, to int) {
	from, to = last, last
	for r := first; r < last && (to == last || r-to < kernel.Lanes); r++ {
		if slices.ContainsFunc(s.readers.of(r), counts) {
			from, to = min(from, r), r+1
			if to == last {
				break
			}
		}
	}
	return from, to
}

// layer runs one layer. It writes the stream after the layer to next, unless next is nil.
func (s *shard) layer(l int, next []float32) {
	a := &s.states[l]
	s.project(l, a, s.rows)
	s.eachPlace(func(r int, at reader) { s.rotate(a.qkv, r, at.t) })
	s.eachHead(func(thread *shardThread, q *sequence, kv int) { s.attend(thread, a, q, kv) })
	s.feedForward(l, a, next, s.rows)
}

// output computes the logits of rows positions from first on, those of trained tokens in
// own.
func (s *shard) output(logits, own []float32, first, rows int) {
	s.pass.output(logits, own, s.normed[first*s.d:], rows)
}

// eachPlace calls do for each position of the shard with the first of its readers.
func (s *shard) eachPlace(do func(r int, at reader)) {
	s.eachRange(0, s.rows, func(_ *shardThread, first, last int) {
		for r := first; r < last; r++ {
			do(r, s.readers.of(r)[0])
		}
	})
}

// eachRange calls do for ranges of positions that cover those from first to last.
func (s *shard) eachRange(first, last int, do func(thread *shardThread, first, last int)) {
	if s.split == nil {
		do(&s.threads[0], first, last)
		return
	}
	s.eachRows(last-first, func(worker, from, to int) { do(&s.threads[worker], first+from, first+to) })
}

// eachHead calls do for each key head of each sequence.
func (s *shard) eachHead(do func(thread *shardThread, q *sequence, kv int)) {
	s.each(len(s.sequences)*s.KVHeads, func(thread *shardThread, i int) {
		if q := &s.sequences[i/s.KVHeads]; q.Own > 0 {
			do(thread, q, i%s.KVHeads)
		}
	})
}

// eachTreesHead does what eachHead does, but sequences that share positions run on one
// thread, in their order.
func (s *shard) eachTreesHead(do func(thread *shardThread, q *sequence, kv int)) {
	s.each(len(s.trees)*s.KVHeads, func(thread *shardThread, i int) {
		first, last := s.trees[i/s.KVHeads], len(s.sequences)
		if next := i/s.KVHeads + 1; next < len(s.trees) {
			last = s.trees[next]
		}
		for j := first; j < last; j++ {
			if q := &s.sequences[j]; q.Own > 0 {
				do(thread, q, i%s.KVHeads)
			}
		}
	})
}

// each calls do for each part below n.
func (s *shard) each(n int, do func(thread *shardThread, part int)) {
	if s.split != nil {
		s.split.run(n, func(worker, i int) { do(&s.threads[worker], i) })
		return
	}
	for i := range n {
		do(&s.threads[0], i)
	}
}

// eachPosition calls do for each of some rows, with its logits.
func (s *shard) eachPosition(logits []float32, first, rows int, do func(thread *shardThread, r int, logits []float32)) {
	s.eachRange(first, first+rows, func(thread *shardThread, from, to int) {
		for r := from; r < to; r++ {
			do(thread, r, logits[(r-first)*s.v:(r-first+1)*s.v])
		}
	})
}

// read computes the outcomes of position r for each of its readers.
func (s *shard) read(thread *shardThread, r int, logits []float32) {
	readers := s.readers.of(r)
	for i, to := range readers {
		var o outcome
		if i > 0 && to.choosesLike(readers[i-1]) {
			o = s.outcomes[readers[i-1].answer()]
			o.logprob = o.logprobOf(logits[to.q.tokens[to.t+1]], to.q.scale)
		} else {
			o = s.outcome(thread, to.q, to.t, logits)
		}
		at := to.answer()
		s.outcomes[at], s.logprobs[at], s.entropies[at] = o, o.logprob, o.entropy
	}
}

// outcome returns the outcome of position t's logits for the token that follows.
func (s *shard) outcome(thread *shardThread, q *sequence, t int, logits []float32) outcome {
	token := q.tokens[t+1]
	if !q.restricted(t) {
		return s.tokenOutcome(logits, s.VocabSize, int(token), q.scale)
	}
	n := thread.choice.among(q.allowed[t], s.VocabSize)
	return s.tokenOutcome(thread.choice.gather(logits), n, thread.choice.indexOf(token), q.scale)
}

// applyObjective lets the objective write the gradients of all positions. It reports
// whether some are not 0; all are where each attempt of a group got the same reward.
func (s *shard) applyObjective(objective model.Objective) bool {
	clear(s.gradient)
	clear(s.entropyGradient)
	for _, q := range s.sequences {
		from, to := q.answers, q.end()
		objective(q.Index, s.logprobs[from:to:to], s.entropies[from:to:to], s.gradient[from:to:to], s.entropyGradient[from:to:to])
	}
	learns := func(x float32) bool { return x != 0 }
	return slices.ContainsFunc(s.gradient, learns) || slices.ContainsFunc(s.entropyGradient, learns)
}
