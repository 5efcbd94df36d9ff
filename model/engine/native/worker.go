package native

import (
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
)

// worker is one thread's memory for decoding, enough for a unit. In a wide model all
// threads use the first worker's memory for a unit's rows.
type worker struct {
	*pass
	shape   kvcache.Shape // of pages
	team    []*worker
	state   activations
	final   []float32 // rows that sample, R·D
	normed  []float32
	inverse []float32
	logits  []float32
	own     []float32 // R·tokenWidth, logits of trained tokens
	scores  []float32 // query heads of a group × width
	width   int
	choice  choice
	memory  arena
}

func newWorkers(p *pass, threads int) []*worker {
	workers := make([]*worker, threads)
	for i := range workers {
		workers[i] = &worker{pass: p, shape: p.pageShape(), team: workers}
		if i == 0 || p.split == nil {
			workers[i].takeMemory(p.unitRows())
		}
	}
	return workers
}

func (b *worker) takeMemory(rows int) {
	b.memory.layOut(func() {
		b.state = b.takeActivations(&b.memory, rows)
		b.final, b.normed, b.inverse = b.memory.alloc(rows*b.d), b.memory.alloc(rows*b.d), b.memory.alloc(rows)
		b.logits, b.own = b.memory.alloc(rows*b.v), b.memory.alloc(rows*b.tokenWidth())
	})
}

// reserve makes room for attention to positions below n.
func (b *worker) reserve(n int) {
	if n <= b.width {
		return
	}
	b.width = (max(n, 2*b.width) + kvcache.PagePositions - 1) / kvcache.PagePositions * kvcache.PagePositions
	b.scores = make([]float32, b.group*b.width)
}

// run feeds the tokens of a unit's requests and samples for those whose last
// known token is among them.
func (b *worker) run(u *unit) {
	a := &b.state
	row := 0
	for _, q := range u.requests {
		for t := range q.feed {
			b.embedToken(a.x[row*b.d:], q.token(q.cached+t))
			row++
		}
	}
	for layer := range b.layers {
		b.project(layer, a, u.rows)
		row = 0
		for _, q := range u.requests {
			b.remember(q, layer, row)
			row += q.feed
		}
		b.attendAll(u, layer)
		b.feedForward(layer, a, a.x, u.rows)
	}
	b.sample(u)
}

// remember rotates a request's new queries and keys to their positions, and stores keys
// and values in its pages.
func (b *worker) remember(q *request, layer, row int) {
	for t := range q.feed {
		position := q.cached + t
		b.rotate(b.state.qkv, row+t, position)
		page, at := q.pages[position/kvcache.PagePositions].Data(), position%kvcache.PagePositions
		qkv := b.state.qkv[(row+t)*b.q:]
		for kv := range b.KVHeads {
			key := b.o + kv*b.h
			value := key + b.KVHeads*b.h
			keys := b.shape.Keys(page, layer, kv)
			for i, x := range qkv[key : key+b.h] {
				keys[i*kvcache.PagePositions+at] = x
			}
			copy(b.shape.Values(page, layer, kv)[at*b.h:], qkv[value:value+b.h])
		}
	}
}

// attendAll mixes the values of all rows of a unit.
func (b *worker) attendAll(u *unit, layer int) {
	if b.split == nil {
		row := 0
		for _, q := range u.requests {
			for t := range q.feed {
				for kv := range b.KVHeads {
					b.attend(b.scores, q, layer, row+t, q.cached+t+1, kv)
				}
			}
			row += q.feed
		}
		return
	}
	b.split.run(u.rows*b.KVHeads, func(thread, i int) {
		row, first := i/b.KVHeads, 0
		for _, q := range u.requests {
			if t := row - first; t < q.feed {
				b.attend(b.team[thread].scores, q, layer, row, q.cached+t+1, i%b.KVHeads)
				return
			}
			first += q.feed
		}
	})
}

// attend mixes the values of the first n positions for one row and the heads that share a
// key head. It computes the same chains as shard.attend, cut at pages.
func (b *worker) attend(scores []float32, q *request, layer, row, n, kv int) {
	queries := b.state.qkv[row*b.q+kv*b.group*b.h:]
	for i, page := range q.pages {
		from := i * kvcache.PagePositions
		if from >= n {
			break
		}
		columns := min(kvcache.PagePositions, kernel.Pad(n-from))
		b.MatMul(scores[from:], b.width, queries, b.h, 1, b.shape.Keys(page.Data(), layer, kv), kvcache.PagePositions, b.group, columns, b.h, false)
	}
	for head := range b.group {
		b.Softmax(scores[head*b.width:head*b.width+kernel.Pad(n)], n, b.scale)
	}
	mixed := b.state.mixed[row*b.o+kv*b.group*b.h:]
	for i, page := range q.pages {
		from := i * kvcache.PagePositions
		if from >= n {
			break
		}
		b.MatMul(mixed, b.h, scores[from:], b.width, 1, b.shape.Values(page.Data(), layer, kv), b.h, b.group, b.h, min(kvcache.PagePositions, n-from), i > 0)
	}
}

// sample advances the unit's requests, and samples for those that have nothing left to
// feed.
func (b *worker) sample(u *unit) {
	row, n := 0, 0
	for _, q := range u.requests {
		row += q.feed
		q.cached += q.feed
		if q.sampling = q.remaining() == 0; q.sampling {
			copy(b.final[n*b.d:(n+1)*b.d], b.state.x[(row-1)*b.d:])
			n++
		}
	}
	if n == 0 {
		return
	}
	b.norm(b.parameters.norm, b.normed, b.final, b.inverse, n)
	b.output(b.logits, b.own, b.normed, n)
	if b.split == nil {
		b.chooseAll(b, u.requests, 0, n)
		return
	}
	b.eachRows(n, func(thread, first, last int) { b.chooseAll(b.team[thread], u.requests, first, last) })
}

// chooseAll lets worker by choose for the requests that sample, from number first up to,
// but without, number last.
func (b *worker) chooseAll(by *worker, requests []*request, first, last int) {
	n := 0
	for _, q := range requests {
		if n == last {
			return
		}
		if q.sampling {
			if n >= first {
				by.choose(q, b.logits[n*b.v:(n+1)*b.v])
			}
			n++
		}
	}
}

// choose samples one token: the one with the largest logit/temperature + noise, or of
// several the one with the lowest number. If tokens are given, it takes the next of them.
func (b *worker) choose(q *request, logits []float32) {
	restricted, err := b.restrict(q, logits)
	if err != nil {
		q.Err = err
		return
	}
	var token int32
	var o outcome
	if restricted {
		token, o = b.chooseAmong(q, logits)
	} else {
		token, o = b.chooseFreely(q, logits)
	}
	if math.IsNaN(float64(o.logprob)) || math.IsInf(float64(o.logprob), 0) {
		q.Err = fmt.Errorf("logits of token %d of the completion: %w", len(q.Completion.Tokens), model.ErrNotFinite)
		return
	}
	q.Accept(token, o.logprob, restricted && len(b.choice.tokens) == 1)
}

func (b *worker) chooseFreely(q *request, logits []float32) (int32, outcome) {
	var token int
	switch {
	case q.Given != nil:
		token = int(q.Given[len(q.Completion.Tokens)])
	case q.Temperature == 0:
		token = largest(logits[:b.VocabSize])
	default:
		token = model.GumbelChoose(logits[:b.VocabSize], q.scale, q.Seed, len(q.Completion.Tokens))
	}
	return int32(token), b.tokenOutcome(logits, b.VocabSize, token, q.scale)
}

// largest returns the index of the largest number, the first of several.
func largest(xs []float32) int {
	at := 0
	for i, x := range xs {
		if x > xs[at] {
			at = i
		}
	}
	return at
}
