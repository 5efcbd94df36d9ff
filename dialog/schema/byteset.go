package schema

import (
	"iter"
	"math/bits"
)

// ByteSet is a set of bytes.
type ByteSet [4]uint64

// Has reports whether b is in the set.
func (s ByteSet) Has(b byte) bool { return s[b>>6]&(1<<(b&63)) != 0 }

// Add puts b into the set.
func (s *ByteSet) Add(b byte) { s[b>>6] |= 1 << (b & 63) }

// Len returns the number of bytes in the set.
func (s ByteSet) Len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// All yields the bytes of the set in order.
func (s ByteSet) All() iter.Seq[byte] {
	return func(yield func(byte) bool) {
		for i, word := range s {
			for ; word != 0; word &= word - 1 {
				if !yield(byte(i<<6 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

// split keeps the bytes that other does not distinguish from b: those in other if b is in
// it, else those that are not.
func (s *ByteSet) split(other ByteSet, b byte) {
	for i := range s {
		if other.Has(b) {
			s[i] &= other[i]
		} else {
			s[i] &^= other[i]
		}
	}
}

func (s *ByteSet) union(other ByteSet) {
	for i := range s {
		s[i] |= other[i]
	}
}

// span returns the set of the bytes from low to high.
func span(low, high byte) ByteSet {
	var s ByteSet
	for b := int(low); b <= int(high); b++ {
		s.Add(byte(b))
	}
	return s
}
