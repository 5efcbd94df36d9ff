package model

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// ErrForm is wrapped when a reply can't be held to a form: no constraint can be made from
// the form, or no token of the vocabulary may come next.
var ErrForm = errors.New("form can't be kept")

// Form describes the required shape of a reply as data, so that a sampler in another
// process can hold the reply to it and a trainer can rebuild the sampling distribution.
// Its zero value restricts nothing. Codec names the encoding of the reply's tokens.
type Form struct {
	Codec string `json:"codec"`
	// Schema is a JSON Schema that the reply's text satisfies; `{}` is any object.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Tools are the callable tools. With Call the reply is a call of one of them, its
	// arguments valid by the tool's schema; without Call the reply is not restricted.
	Tools []FormTool `json:"tools,omitempty"`
	Call  bool       `json:"call,omitempty"`
	// Stop holds texts that end the reply, at the first token that completes one of them.
	Stop []string `json:"stop,omitempty"`
	// Bare says that all of the reply is text, in which there are neither thoughts nor
	// calls: a stop text ends it anywhere.
	Bare bool `json:"bare,omitempty"`
	// NoCall and Strict are for servers that take messages, render tools and parse calls
	// by themselves. NoCall: no tool may be called. Strict: the schema was requested as
	// strict.
	NoCall bool `json:"no_call,omitempty"`
	Strict bool `json:"strict,omitempty"`
}

// FormTool is a tool as a Form needs it.
type FormTool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters,omitempty"` // JSON Schema
}

// Masks reports whether the form excludes tokens, rather than only ending the
// reply.
func (f *Form) Masks() bool { return f != nil && (len(f.Schema) > 0 || f.Call) }

// Constraint follows one reply token by token. It serves only that reply and is not safe
// for concurrent use.
type Constraint interface {
	// Allowed puts the tokens that may come next into set, which arrives empty, and
	// reports true; if any token may come, it reports false and leaves set alone.
	Allowed(set TokenSet) bool
	// Accept takes the next token of the reply. It reports true if the reply ends
	// with it.
	Accept(token int32) (done bool)
}

// Constrain makes the constraint of a form: dialog.Constrain, or nothing where
// forms are not supported.
type Constrain func(Form) (Constraint, error)

// TokenSet is a set of token ids, 64 to a word.
type TokenSet []uint64

// NewTokenSet returns an empty set for a vocabulary.
func NewTokenSet(vocab int) TokenSet { return make(TokenSet, (vocab+63)/64) }

// Add puts a token into the set.
func (s TokenSet) Add(token int32) { s[token>>6] |= 1 << (token & 63) }

// Has reports whether the token is in the set. It reports false for tokens beyond the
// vocabulary for which the set was made.
func (s TokenSet) Has(token int32) bool {
	word := int(token >> 6)
	return word < len(s) && s[word]&(1<<(token&63)) != 0
}

// AppendTokens appends to tokens the elements of the set below vocab, ascending.
func (s TokenSet) AppendTokens(tokens []int32, vocab int) []int32 {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			token := 64*i + bits.TrailingZeros64(word)
			if token >= vocab {
				return tokens
			}
			tokens = append(tokens, int32(token))
		}
	}
	return tokens
}

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

// TokenRanges is a set of token ids in text form, ascending, such as "17,151665-151935".
// The empty text is the empty set.
type TokenRanges string

// RangesOf returns the ids below vocab that in holds of.
func RangesOf(vocab int, in func(id int32) bool) TokenRanges {
	var text []byte
	for id := 0; id < vocab; id++ {
		if !in(int32(id)) {
			continue
		}
		first := id
		for id+1 < vocab && in(int32(id+1)) {
			id++
		}
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(first), 10)
		if id > first {
			text = strconv.AppendInt(append(text, '-'), int64(id), 10)
		}
	}
	return TokenRanges(text)
}

// Each calls use for the first and the last id of each range.
func (r TokenRanges) Each(use func(first, last int)) {
	for part := range strings.SplitSeq(string(r), ",") {
		if first, last, err := rangeOf(part); err == nil {
			use(first, last)
		}
	}
}

// Tokens returns how many ids there are.
func (r TokenRanges) Tokens() (n int) {
	r.Each(func(first, last int) { n += last - first + 1 })
	return n
}

// Has reports whether id is in the set.
func (r TokenRanges) Has(id int32) (has bool) {
	r.Each(func(first, last int) { has = has || first <= int(id) && int(id) <= last })
	return has
}

func rangeOf(part string) (first, last int, err error) {
	low, high, several := strings.Cut(part, "-")
	if !several {
		high = low
	}
	if first, err = strconv.Atoi(low); err == nil {
		last, err = strconv.Atoi(high)
	}
	return first, last, err
}

// check returns an error unless r is what RangesOf writes for a vocabulary, and leaves an
// id out.
func (r TokenRanges) check(vocab int) error {
	if r == "" {
		return nil
	}
	next := 0
	for part := range strings.SplitSeq(string(r), ",") {
		first, last, err := rangeOf(part)
		if err != nil || first < next || last < first || last >= vocab {
			return fmt.Errorf("%w: unused_tokens has %q, want ascending ids below %d", ErrArchitecture, part, vocab)
		}
		next = last + 2
	}
	if r.Tokens() == vocab {
		return fmt.Errorf("%w: unused_tokens holds the whole vocabulary", ErrArchitecture)
	}
	return nil
}
