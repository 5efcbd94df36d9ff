package hf

import (
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// maxTwins is how many twins of a token are listed.
const maxTwins = 4

// Twins are the tokens whose rows of the output layer are the row of another token.
type Twins struct {
	Tokens []int32 // some of them, in ascending order
	Number int
}

// Twins returns, for each of the tokens, those other tokens that have the same row of the
// output layer, up to a hundredth of the row's length. A model gives such tokens the same
// probability whatever comes before, and an adapter of its other layers can't change that.
// Tokens that unused holds don't count, because nothing samples them.
func (s *Stored) Twins(tokens []int32, unused model.TokenRanges) (map[int32]Twins, error) {
	name := outputLayer
	if s.Architecture.Tied {
		name = inputLayer
	}
	p, ok := s.places[name]
	if !ok || len(p.Shape) != 2 || p.DType.width() == 0 {
		return nil, fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
	}
	rows, width := p.Shape[0], p.Shape[1]
	raw := make([]byte, width*p.DType.width())
	row := make([]float32, width)
	read := func(id int) error {
		if _, err := p.file.ReadAt(raw, p.begin+int64(id)*int64(len(raw))); err != nil {
			return fmt.Errorf("read tensor %s: %w", name, err)
		}
		decodeFloats(p.DType, row, raw)
		return nil
	}
	found, kept := map[int32]Twins{}, map[int32][]float32{}
	for _, id := range tokens {
		if id < 0 || int(id) >= rows {
			continue
		}
		if err := read(int(id)); err != nil {
			return nil, err
		}
		kept[id] = append([]float32{}, row...)
	}
	skip := make([]bool, rows)
	unused.Each(func(first, last int) {
		for id := first; id <= min(last, rows-1); id++ {
			skip[id] = true
		}
	})
	for id := range rows {
		if skip[id] || len(kept) == 0 {
			continue
		}
		if err := read(id); err != nil {
			return nil, err
		}
		for of, its := range kept {
			if int(of) != id && alike(its, row) {
				t := found[of]
				if t.Number++; len(t.Tokens) < maxTwins {
					t.Tokens = append(t.Tokens, int32(id))
				}
				found[of] = t
			}
		}
	}
	return found, nil
}

// alike reports whether two rows differ by less than a hundredth of their length.
func alike(a, b []float32) bool {
	const part = 16 // most rows differ already here
	difference, length := 0.0, 0.0
	for i, x := range a {
		d := float64(x) - float64(b[i])
		difference += d * d
		length += float64(x) * float64(x)
		if i == part && difference > 0.1*length {
			return false
		}
	}
	return difference <= 1e-4*length
}
