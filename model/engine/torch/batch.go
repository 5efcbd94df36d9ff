package torch

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

// batch holds some rows that go through the model together. It is laid out as [rows,
// longest], with padding after each row.
type batch struct {
	rows    []int // of the caller's
	choices int   // tokens of all rows but the first of each
	arrays  []array
}

// spread checks rows and cuts them into passes, each of which has one batch for each
// rank. Rows are dealt to the ranks in the order of their lengths, so that all ranks get
// about as many rows, and as long ones. A rank without a row gets an idle batch, because
// all ranks have to take part. The result depends on nothing but rows, limit and ranks.
// Rows without a choice are in no batch.
func spread(a model.Architecture, rows []model.Row, limit, ranks int) ([][]batch, error) {
	order, err := byLength(a, rows)
	if err != nil {
		return nil, err
	}
	var passes [][]batch
	for r := range ranks {
		var mine []int
		for i := r; i < len(order); i += ranks {
			mine = append(mine, order[i])
		}
		for at, b := range cut(a, rows, mine, limit) {
			if at == len(passes) { // rank 0 has the most
				passes = append(passes, make([]batch, ranks))
			}
			passes[at][r] = b
		}
	}
	for _, pass := range passes {
		for r := range pass {
			if pass[r].rows == nil {
				pass[r] = idle(a, rows[order[0]])
			}
		}
	}
	return passes, nil
}

// byLength returns the indices of the rows that have a choice, the longest row first.
func byLength(a model.Architecture, rows []model.Row) ([]int, error) {
	order := make([]int, 0, len(rows))
	for i, r := range rows {
		if err := r.Check(a); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
		if len(r.Tokens) > 1 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(rows[j].Tokens) - len(rows[i].Tokens) })
	return order, nil
}

// cut groups rows of similar length into batches of at most limit tokens, padding
// included. A longer row is a batch alone.
func cut(a model.Architecture, rows []model.Row, order []int, limit int) []batch {
	var all []batch
	for len(order) > 0 {
		longest := len(rows[order[0]].Tokens)
		n := min(len(order), max(1, limit/longest))
		all = append(all, newBatch(a, rows, order[:n], longest))
		order = order[n:]
	}
	return all
}

// idle returns a batch whose results are not used: two tokens of a row.
func idle(a model.Architecture, r model.Row) batch {
	b := newBatch(a, []model.Row{{Tokens: r.Tokens[:2]}}, []int{0}, 2)
	b.rows = nil
	return b
}

func newBatch(a model.Architecture, rows []model.Row, indices []int, longest int) batch {
	b := batch{rows: indices}
	tokens, lengths := make([]int32, len(indices)*longest), make([]int32, len(indices))
	var scale []float32
	m := masks{bytes: (a.VocabSize + 63) / 64 * 8, numbers: map[string]int32{}}
	for k, i := range indices {
		r := rows[i]
		copy(tokens[k*longest:], r.Tokens)
		lengths[k] = int32(len(r.Tokens))
		factor := float32(1)
		if r.Temperature != 0 {
			factor = float32(1 / r.Temperature)
		}
		for t := range len(r.Tokens) - 1 {
			scale = append(scale, factor)
			m.add(r, t)
		}
	}
	b.choices = len(scale)
	b.arrays = []array{
		newArray("tokens", tokens, len(indices), longest), newArray("lengths", lengths, len(indices)), newArray("scale", scale, len(scale)),
		newArray("bits", m.bits, len(m.numbers), m.bytes), newArray("mask", m.of, len(m.of)),
	}
	return b
}

// masks holds the distinct sets that the choices of a batch are restricted to.
type masks struct {
	bytes   int // of a set: bit k of byte j is for token 8j+k
	bits    []byte
	numbers map[string]int32
	of      []int32 // number of each choice's set, -1 if all tokens are allowed
}

func (m *masks) add(r model.Row, choice int) {
	if r.Allowed == nil || r.Allowed[choice] == nil {
		m.of = append(m.of, -1)
		return
	}
	bits := make([]byte, m.bytes)
	for i, word := range r.Allowed[choice] {
		if 8*i < len(bits) {
			binary.LittleEndian.PutUint64(bits[8*i:], word)
		}
	}
	number, known := m.numbers[string(bits)]
	if !known {
		number = int32(len(m.numbers))
		m.numbers[string(bits)] = number
		m.bits = append(m.bits, bits...)
	}
	m.of = append(m.of, number)
}

// split sets to[i], for each row i of b, to the row's part of numbers. numbers has one
// number for each choice.
func (b batch) split(rows []model.Row, numbers []float32, to [][]float32) {
	for _, i := range b.rows {
		n := len(rows[i].Tokens) - 1
		to[i], numbers = numbers[:n:n], numbers[n:]
	}
}
