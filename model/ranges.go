package model

import (
	"fmt"
	"strconv"
	"strings"
)

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
