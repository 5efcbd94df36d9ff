package native

import (
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
	"github.com/fulgurite/fulgurite/model/engine/native/kvcache"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
	"github.com/fulgurite/fulgurite/model/engine/native/prefix"
)

// shardPositions is how many positions a shard gathers before the next begins:
// few enough that a small model's activations stay in the second-level cache.
const shardPositions = 256

// sequence is a row of a batch in a shard. Its positions predict tokens[1:].
type sequence struct {
	prefix.Row
	tokens    []int32
	allowed   []model.TokenSet
	needed    []bool  // nil for all
	scale     float32 // 1/temperature
	answers   int     // index of its first log-probability in those of the shard
	attention int     // its offset in activations.attention; -1 if its attention is computed again
	width     int     // of a row of attention
}

// restricted reports whether position t may choose only among some tokens.
func (q *sequence) restricted(t int) bool { return q.allowed != nil && q.allowed[t] != nil }

// needs reports whether the outcome of position t is read.
func (q *sequence) needs(t int) bool { return q.needed == nil || q.needed[t] }

// end returns the index at which the sequence's log-probabilities end.
func (q *sequence) end() int { return q.answers + q.N }

// sharedPositions returns about how many positions a shard gathers when rows share
// prefixes: the larger it is, the fewer prefixes lie in two shards. For a wide model it
// is the number of positions whose activations and logits can be kept.
func (p *pass) sharedPositions() int {
	if !p.wide() {
		return shardPositions
	}
	var some arena
	p.takeActivations(&some, kernel.Lanes)
	numbers := p.Layers * some.used / kernel.Lanes // of a position, without its attention
	return max(shardPositions, min(keepNumbers*3/4/numbers, logitNumbers/p.v))
}

// cut distributes rows over shards by their tokens alone. If share is true, rows of a
// shard share their common prefixes.
func (p *pass) cut(rows []model.Row, share bool) ([][]sequence, error) {
	scales, lengths, tokens := make([]float32, len(rows)), make([]int, len(rows)), make([][]int32, len(rows))
	for i, row := range rows {
		if err := row.Check(p.Architecture); err != nil {
			return nil, rowError(i, err)
		}
		scales[i], lengths[i], tokens[i] = inverseTemperature(row.Temperature), len(row.Tokens)-1, row.Tokens[:len(row.Tokens)-1]
	}
	var placed [][]prefix.Row
	if share {
		placed = prefix.Shared(tokens, p.sharedPositions())
	} else {
		placed = prefix.InOrder(lengths, shardPositions)
	}
	shards := make([][]sequence, len(placed))
	for i, places := range placed {
		attention, answers := 0, 0
		for _, at := range places {
			row := rows[at.Index]
			q := sequence{
				Row: at, tokens: row.Tokens, allowed: row.Allowed, needed: row.Needed, scale: scales[at.Index],
				answers: answers, attention: attention, width: kernel.Pad(at.N),
			}
			if q.Own*q.width > keepPositions*keepPositions {
				q.attention = -1
			} else {
				attention += p.Heads * q.Own * q.width
			}
			answers += q.N
			shards[i] = append(shards[i], q)
		}
	}
	return shards, nil
}

// reader is position t of a sequence. Several readers may need outcomes of the same
// position of a shard.
type reader struct {
	q *sequence
	t int
}

// answer returns the index of the reader's outcome in those of the shard.
func (r reader) answer() int { return r.q.answers + r.t }

// choosesLike reports whether both readers have the same soft-max. Their tokens may
// differ.
func (r reader) choosesLike(other reader) bool {
	return r.q.scale == other.q.scale && !r.q.restricted(r.t) && !other.q.restricted(other.t)
}

// readers holds the readers of all positions of a shard.
type readers struct {
	all  []reader // by position, then by sequence
	ends []int    // end of each position's readers in all
}

// load finds the readers of sequences that lie in rows positions.
func (rs *readers) load(sequences []sequence, rows int) {
	rs.ends = slices.Grow(rs.ends[:0], rows)[:rows]
	clear(rs.ends)
	each := func(do func(q *sequence, r, t int)) {
		for i := range sequences {
			q := &sequences[i]
			for _, part := range q.Path {
				for i := range part.N {
					do(q, part.First+i, part.At+i)
				}
			}
		}
	}
	each(func(_ *sequence, r, _ int) { rs.ends[r]++ })
	total := 0
	for r, n := range rs.ends { // begin of each position's readers; the next loop turns it into the end
		rs.ends[r] = total
		total += n
	}
	rs.all = slices.Grow(rs.all[:0], total)[:total]
	each(func(q *sequence, r, t int) {
		rs.all[rs.ends[r]] = reader{q, t}
		rs.ends[r]++
	})
}

// of returns the readers of position r.
func (rs *readers) of(r int) []reader {
	first := 0
	if r > 0 {
		first = rs.ends[r-1]
	}
	return rs.all[first:rs.ends[r]]
}

const (
	// leastShared is the shortest common prefix that one prompt takes over from another:
	// to wait for fewer tokens costs more than to compute them.
	leastShared = 8
	// keptNumbers and keptPages limit the memory for finished requests that a decoder
	// takes in addition, and that stays while it has no requests: 256 MiB, and no more
	// positions than are worth it for a small model, which computes them fast.
	keptNumbers = 64 << 20
	keptPages   = 1024
)

func newKept(pages *kvcache.Pages) *kvcache.Kept {
	return kvcache.NewKept(pages, pagesToStay(pages.Shape))
}

func pagesToStay(s kvcache.Shape) int { return min(keptPages, keptNumbers/s.Numbers()) }

// KeptBytes returns how much memory a decoder takes at most in addition to that of
// requests that run at the same time: keys and values of earlier requests, for those that
// continue them.
func KeptBytes(a model.Architecture) int64 {
	s := newLayout(a).pageShape()
	return 4 * int64(pagesToStay(s)*s.Numbers())
}

// share gives q the keys and values of a prefix of its prompt that finished requests, or
// requests before it in the batch, have computed. If another request is about to compute
// them, q waits for it, and share reports true. q only waits for a request before it, so
// the first request of a batch never waits.
func (b *batch) share(q *request, before []*request) (waits bool) {
	if !q.sought {
		q.sought = true
		b.seek(q, before)
	}
	b.follow(q)
	return q.leader != nil
}

// seek finds the request that has, or will have, the longest prefix of q's prompt. The
// last token of a prompt is always fed, because the first token of the completion comes
// from it.
func (b *batch) seek(q *request, before []*request) {
	most := len(q.Prompt) - 1
	least := max(leastShared, q.cached+1)
	if b.alone || most < least {
		return
	}
	n, pages := b.kept.Longest(q.Prompt[:most])
	for _, other := range before {
		if n == most {
			break
		}
		if common := min(prefix.Common(other.Prompt, q.Prompt), most); common > n {
			n, q.leader, q.shared = common, other, common
		}
	}
	switch {
	case n < least:
		q.leader = nil
	case q.leader == nil:
		b.adopt(q, pages, n)
	}
}

// follow lets q take over what its leader has computed, as soon as that is everything
// that they share. If the leader ends before that, q takes what there is and seeks
// another leader for the rest.
func (b *batch) follow(q *request) {
	if q.leader == nil {
		return
	}
	ready := min(q.shared, q.leader.cached)
	if ready < q.shared && !q.leader.Finished() {
		return
	}
	if ready > q.cached {
		b.adopt(q, q.leader.pages, ready)
	}
	q.sought, q.leader = ready == q.shared, nil
}

// adopt gives q the first n positions of pages.
func (b *batch) adopt(q *request, pages []*kvcache.Page, n int) {
	shared := b.pages.Share(pages, n)
	b.pages.Release(q.pages)
	q.pages, q.cached = shared, n
	q.Share(n)
}

// remove answers requests that have finished. Before that, requests that wait for them
// take over what they have computed.
func (b *batch) remove() {
	for _, q := range b.running {
		if !q.Finished() {
			b.follow(q)
		}
	}
	b.running = slices.DeleteFunc(b.running, b.finish)
}

// keep keeps the pages of a request that has finished, or was abandoned, for requests
// that continue it.
func (b *batch) keep(q *request) {
	if b.alone {
		b.pages.Release(q.pages)
		return
	}
	tokens := make([]int32, q.cached)
	copy(tokens[copy(tokens, q.Prompt):], q.Completion.Tokens)
	b.kept.Keep(tokens, q.pages)
}

// arena lends slices that are valid until the next layOut. It grows to what the largest
// layout needs and then allocates no more. The slices are not zeroed.
type arena struct {
	held *memory.Floats
	data []float32
	used int
}

// layOut runs take, whose calls of alloc divide the memory among them. If the arena has
// to grow, take runs twice, and in the first run alloc may return nil. So take must not
// read or write the slices that it gets.
func (a *arena) layOut(take func()) {
	a.used = 0
	take()
	if a.used <= len(a.data) {
		return
	}
	a.free()
	a.held = memory.New(a.used)
	a.data, a.used = a.held.Data(), 0
	take()
}

func (a *arena) alloc(n int) []float32 {
	n = kernel.Pad(n)
	from := a.used
	a.used += n
	if a.used > len(a.data) {
		return nil
	}
	return a.data[from:a.used:a.used]
}

func (a *arena) free() {
	a.data = nil
	a.held.Free()
}
