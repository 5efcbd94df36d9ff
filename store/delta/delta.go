// Package delta encodes a text as its differences from another text. It is made for
// requests of one dialog: each repeats the one before it and adds something in its
// middle, or changes a word of it.
//
// A delta is a sequence of pairs: new bytes, then a range of the base to copy. Lengths
// and offsets are unsigned LEB128 varints: the length of the new bytes, the bytes, the
// length of the range, and its offset in the base (left out if the length is 0).
package delta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// block is the shortest range that is looked for: shorter ones save little.
const block = 32

// ErrDelta is wrapped by errors of Decode.
var ErrDelta = errors.New("bad delta")

// Encode returns the delta from base to target. It first tries, cheaply, whether target
// begins as base[from:] does and ends as base does, which is the likely case.
func Encode(base []byte, from int, target []byte) []byte {
	head := Shared(base[from:], target)
	tail := sharedEnd(base[from+head:], target[head:])
	var w writer
	w.copy(from, head)
	// The common beginning and end are not searched again.
	w.match(newIndex(base, [2]int{0, from}, [2]int{from + head, len(base) - tail}), target[head:len(target)-tail])
	w.copy(len(base)-tail, tail)
	if len(w.fresh)+w.copied > 0 {
		w.flush()
	}
	return w.out
}

// Decode returns the target that a delta was made of.
func Decode(base, delta []byte) ([]byte, error) {
	out := make([]byte, 0, len(base)+len(delta))
	for len(delta) > 0 {
		n, rest, err := length(delta, len(delta))
		if err != nil || n > len(rest) {
			return nil, fmt.Errorf("%w: %d bytes of %d left", ErrDelta, n, len(rest))
		}
		out, delta = append(out, rest[:n]...), rest[n:]
		if n, delta, err = length(delta, len(base)); err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		var at int
		if at, delta, err = length(delta, len(base)-n); err != nil {
			return nil, err
		}
		out = append(out, base[at:at+n]...)
	}
	return out, nil
}

func length(b []byte, most int) (int, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > uint64(most) {
		return 0, nil, fmt.Errorf("%w: a length is %d, at most %d are possible", ErrDelta, v, most)
	}
	return int(v), b[n:], nil
}

// writer writes pairs. It joins adjacent ranges into one.
type writer struct {
	out, fresh []byte
	at, copied int // the range to copy behind the fresh bytes
}

func (w *writer) add(b []byte) {
	if len(b) == 0 {
		return
	}
	if w.copied > 0 {
		w.flush()
	}
	w.fresh = append(w.fresh, b...)
}

func (w *writer) copy(at, n int) {
	switch {
	case n == 0:
		return
	case w.copied > 0 && w.at+w.copied == at:
		w.copied += n
		return
	case w.copied > 0:
		w.flush()
	}
	w.at, w.copied = at, n
}

func (w *writer) flush() {
	w.out = append(binary.AppendUvarint(w.out, uint64(len(w.fresh))), w.fresh...)
	if w.out = binary.AppendUvarint(w.out, uint64(w.copied)); w.copied > 0 {
		w.out = binary.AppendUvarint(w.out, uint64(w.at))
	}
	w.fresh, w.copied = w.fresh[:0], 0
}

// match encodes text, for which it looks up ranges in the index.
func (w *writer) match(x index, text []byte) {
	begin, at := 0, 0 // text[begin:at] was not found
	for h, fresh := uint32(0), true; len(x.slots) > 0 && at+block <= len(text); {
		if fresh {
			h, fresh = hash(text[at:at+block]), false
		}
		if found, n := x.find(h, text[at:]); n > 0 {
			for at > begin && found > 0 && text[at-1] == x.base[found-1] {
				at, found, n = at-1, found-1, n+1
			}
			w.add(text[begin:at])
			w.copy(found, n)
			at += n
			begin, fresh = at, true
			continue
		}
		if at+block < len(text) {
			h = (h-uint32(text[at])*leaving)*prime + uint32(text[at+block])
		}
		at++
	}
	w.add(text[begin:])
}

// The hash of a block is a polynomial in prime, so that it can roll along a text.
const prime uint32 = 0x01000193

// leaving is prime to the power of block-1, the weight of a block's first byte.
var leaving = func() uint32 {
	p := uint32(1)
	for range block - 1 {
		p *= prime
	}
	return p
}()

func hash(b []byte) (h uint32) {
	for _, c := range b {
		h = h*prime + uint32(c)
	}
	return h
}

// index finds blocks of a base. If two blocks have the same slot, it keeps the later one.
type index struct {
	base  []byte
	slots []int32 // offsets plus 1; 0 is an empty slot
	shift uint
}

func newIndex(base []byte, ranges ...[2]int) index {
	n := 0
	for _, r := range ranges {
		n += (r[1] - r[0]) / block
	}
	if n == 0 {
		return index{}
	}
	width := bits.Len(uint(2 * n))
	x := index{base: base, slots: make([]int32, 1<<width), shift: uint(32 - width)}
	for _, r := range ranges {
		for at := r[0]; at+block <= r[1]; at += block {
			x.slots[x.slot(hash(base[at:at+block]))] = int32(at) + 1
		}
	}
	return x
}

func (x index) slot(h uint32) uint32 { return h * 0x9e3779b1 >> x.shift }

// find returns where in the base text begins, and for how many bytes.
func (x index) find(h uint32, text []byte) (at, n int) {
	at = int(x.slots[x.slot(h)]) - 1
	if at < 0 || !bytes.Equal(x.base[at:at+block], text[:block]) {
		return 0, 0
	}
	return at, block + Shared(x.base[at+block:], text[block:])
}

// stride is how many bytes are compared at once.
const stride = 256

// Shared returns the length of the common beginning of a and b.
func Shared(a, b []byte) (n int) {
	most := min(len(a), len(b))
	for n+stride <= most && bytes.Equal(a[n:n+stride], b[n:n+stride]) {
		n += stride
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// sharedEnd returns the length of the common end of a and b.
func sharedEnd(a, b []byte) (n int) {
	most := min(len(a), len(b))
	a, b = a[len(a)-most:], b[len(b)-most:]
	for n+stride <= most && bytes.Equal(a[most-n-stride:most-n], b[most-n-stride:most-n]) {
		n += stride
	}
	for n < most && a[most-1-n] == b[most-1-n] {
		n++
	}
	return n
}
