package gomlx

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/fulgurite/fulgurite/model"
)

// bucket rounds n up to a size for which graphs are compiled: a power of two, or one and
// a half times a power of two, from 8 on. At most a third is padding.
func bucket(n int) int {
	if n <= 8 {
		return 8
	}
	p := powerOfTwo(n)
	if q := p / 4 * 3; n <= q {
		return q
	}
	return p
}

// powerOfTwo rounds n up to a power of two.
func powerOfTwo(n int) int {
	return 1 << bits.Len(uint(max(n, 1)-1))
}

// padded is a group of rows of similar length in the form of a graph's inputs.
type padded struct {
	rows    []int // indices of the caller's rows
	b, s    int   // rows and tokens, padding included
	tokens  []int32
	targets []int32
	// temperatures is 1 in padded rows: a 0 would cause a division by zero.
	temperatures []float32
	// allowed says for each position which of the v tokens of the vocabulary may be
	// chosen; nil if all tokens may be chosen everywhere.
	allowed []bool
	v       int
}

// pad checks rows and groups them by length, so that short rows are not padded to the
// longest. A group has at most limit tokens. Rows without a target are in no group.
func pad(a model.Architecture, rows []model.Row, limit int) ([]padded, error) {
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
	var groups []padded
	for len(order) > 0 {
		s := bucket(len(rows[order[0]].Tokens) - 1)
		n := 1
		for n < len(order) && bucket(len(rows[order[n]].Tokens)-1) == s && powerOfTwo(n+1)*s <= limit {
			n++
		}
		groups = append(groups, newPadded(rows, order[:n], s, a.VocabSize))
		order = order[n:]
	}
	return groups, nil
}

func newPadded(rows []model.Row, indices []int, s, v int) padded {
	b := powerOfTwo(len(indices))
	p := padded{
		rows: indices, b: b, s: s, v: v,
		tokens: make([]int32, b*s), targets: make([]int32, b*s), temperatures: make([]float32, b),
	}
	for k := range p.temperatures {
		p.temperatures[k] = 1
	}
	for k, i := range indices {
		r := rows[i]
		copy(p.tokens[k*s:(k+1)*s], r.Tokens[:len(r.Tokens)-1])
		copy(p.targets[k*s:(k+1)*s], r.Tokens[1:])
		if r.Temperature != 0 {
			p.temperatures[k] = float32(r.Temperature)
		}
		for t, set := range r.Allowed {
			if set != nil {
				p.restrict(k*s+t, set)
			}
		}
	}
	return p
}

// restrict allows only a set at one position.
func (p *padded) restrict(position int, set model.TokenSet) {
	if p.allowed == nil {
		p.allowed = make([]bool, p.b*p.s*p.v)
		for i := range p.allowed {
			p.allowed[i] = true
		}
	}
	at := p.allowed[position*p.v : (position+1)*p.v]
	for token := range at {
		at[token] = set.Has(int32(token))
	}
}

// inputs returns the inputs of score that come after the weights.
func (p padded) inputs(r *rotary) (in []any, err error) {
	defer caught(&err)
	cos, sin := r.table(p.s)
	in = []any{
		tensors.FromFlatDataAndDimensions(p.tokens, p.b, p.s),
		tensors.FromFlatDataAndDimensions(p.targets, p.b, p.s),
		tensors.FromFlatDataAndDimensions(p.temperatures, p.b),
		tensors.FromFlatDataAndDimensions(cos, p.s, r.half),
		tensors.FromFlatDataAndDimensions(sin, p.s, r.half),
	}
	if p.allowed != nil {
		in = append(in, tensors.FromFlatDataAndDimensions(p.allowed, p.b, p.s, p.v))
	}
	return in, nil
}
