package model

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// BatchForm is the form of one completion in a row. It restricted the sampling of the
// Length tokens from Start on.
type BatchForm struct {
	Start, Length int
	Form          Form
}

// checkForms returns an error if forms of a row overlap, are out of order, or exclude no
// token.
func (r BatchRow) checkForms() error {
	end := 1 // the first token is context
	for i, f := range r.Forms {
		if f.Start < end || f.Length < 1 || f.Length > len(r.Tokens)-f.Start {
			return fmt.Errorf("form %d is that of %d tokens from %d on, want some between %d and %d", i, f.Length, f.Start, end, len(r.Tokens))
		}
		if !f.Form.Masks() {
			return fmt.Errorf("form %d excludes no token", i)
		}
		end = f.Start + f.Length
	}
	return nil
}

// Restrict sets Allowed of the rows that have forms. It runs each form's constraint over
// the tokens that the form restricted, so that the loss sees the same choices as the
// sampler had. It returns ErrBatch, with the row and the token, if that is impossible.
func (b *Batch) Restrict(constrain Constrain) error {
	seen := &sets{kept: map[string]TokenSet{}}
	for i := range b.Rows {
		r := &b.Rows[i]
		for j, f := range r.Forms {
			if constrain == nil {
				return fmt.Errorf("%w: row %d form %d: this trainer supports no forms", ErrBatch, i, j)
			}
			constraint, err := constrain(f.Form)
			if err != nil {
				return fmt.Errorf("%w: row %d form %d: %w", ErrBatch, i, j, err)
			}
			if err := r.restrict(f, constraint, b.VocabSize, seen); err != nil {
				return fmt.Errorf("%w: row %d form %d: %w", ErrBatch, i, j, err)
			}
		}
	}
	return nil
}

func (r *BatchRow) restrict(f BatchForm, constraint Constraint, vocab int, seen *sets) error {
	if r.Allowed == nil {
		r.Allowed = make([]TokenSet, len(r.Tokens)-1)
	}
	set, done := NewTokenSet(vocab), false
	for t := f.Start; t < f.Start+f.Length; t++ {
		token := r.Tokens[t]
		if done {
			return fmt.Errorf("token %d follows the end of the reply", t)
		}
		clear(set)
		if constraint.Allowed(set) {
			if !set.Has(token) {
				return fmt.Errorf("token %d is %d, which the form does not allow there", t, token)
			}
			r.Allowed[t-1] = seen.keep(set)
		}
		done = constraint.Accept(token)
	}
	return nil
}

// sets keeps one copy of each different set. A reply often meets the same few states of a
// form, and a set is as long as the vocabulary.
type sets struct {
	kept map[string]TokenSet
	key  []byte
}

func (s *sets) keep(set TokenSet) TokenSet {
	s.key = s.key[:0]
	for _, word := range set {
		s.key = binary.LittleEndian.AppendUint64(s.key, word)
	}
	if kept, ok := s.kept[string(s.key)]; ok {
		return kept
	}
	kept := slices.Clone(set)
	s.kept[string(s.key)] = kept
	return kept
}
