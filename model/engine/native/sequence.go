package native

import (
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
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
