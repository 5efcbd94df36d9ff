package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The types of values, numbered as in files.
const (
	valueU8 = iota
	valueI8
	valueU16
	valueI16
	valueU32
	valueI32
	valueF32
	valueBool
	valueString
	valueArray
	valueU64
	valueI64
	valueF64
)

func (h *header) metadata(n int) (Metadata, error) {
	m, seen := make(Metadata, n), make(map[string]bool, n)
	for i := range m {
		key, err := h.text()
		if err != nil {
			return nil, fmt.Errorf("metadata pair %d of %d: %w", i+1, n, err)
		}
		if seen[key] {
			return nil, fmt.Errorf("%w: key %q occurs twice", ErrFormat, key)
		}
		seen[key] = true
		kind, err := h.u32()
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
		m[i].Key = key
		if m[i].Value, err = h.value(kind); err != nil {
			return nil, fmt.Errorf("key %q: %w", key, err)
		}
	}
	return m, nil
}

func (h *header) value(kind uint32) (any, error) {
	switch kind {
	case valueString:
		return h.text()
	case valueArray:
		return h.array()
	}
	width := scalarWidth(kind)
	if width == 0 {
		return nil, fmt.Errorf("%w: value of type %d", ErrFormat, kind)
	}
	b := h.buffer[:width]
	if err := h.read(b); err != nil {
		return nil, err
	}
	switch kind {
	case valueBool:
		return b[0] != 0, nil
	case valueF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b)), nil
	case valueF64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
	case valueU64:
		return binary.LittleEndian.Uint64(b), nil
	}
	return whole(kind, b), nil
}

// scalarWidth returns the number of bytes of a scalar value, 0 for other values.
func scalarWidth(kind uint32) int {
	switch kind {
	case valueU8, valueI8, valueBool:
		return 1
	case valueU16, valueI16:
		return 2
	case valueU32, valueI32, valueF32:
		return 4
	case valueU64, valueI64, valueF64:
		return 8
	}
	return 0
}

// whole returns an integer of at most 64 bits. Unsigned values beyond int64 wrap around.
func whole(kind uint32, b []byte) int64 {
	switch kind {
	case valueU8:
		return int64(b[0])
	case valueI8:
		return int64(int8(b[0]))
	case valueU16:
		return int64(binary.LittleEndian.Uint16(b))
	case valueI16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case valueU32:
		return int64(binary.LittleEndian.Uint32(b))
	case valueI32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

func (h *header) array() (any, error) {
	kind, err := h.u32()
	if err != nil {
		return nil, err
	}
	width := scalarWidth(kind)
	if kind == valueString {
		width = 8 // at least the string's length
	}
	if width == 0 {
		return nil, fmt.Errorf("%w: array of values of type %d", ErrUnsupported, kind)
	}
	n, err := h.count("elements", int64(width))
	if err != nil {
		return nil, err
	}
	if n > maxElements {
		return nil, fmt.Errorf("%w: array of %d elements, the limit is %d", ErrUnsupported, n, maxElements)
	}
	if kind == valueString {
		texts := make([]string, n)
		for i := range texts {
			if texts[i], err = h.text(); err != nil {
				return nil, err
			}
		}
		return texts, nil
	}
	return h.numbers(kind, width, n)
}

func (h *header) numbers(kind uint32, width, n int) (any, error) {
	raw := make([]byte, n*width)
	if err := h.read(raw); err != nil {
		return nil, err
	}
	switch kind {
	case valueBool:
		list := make([]bool, n)
		for i := range list {
			list[i] = raw[i] != 0
		}
		return list, nil
	case valueF32, valueF64:
		list := make([]float64, n)
		for i := range list {
			if kind == valueF32 {
				list[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
			} else {
				list[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
			}
		}
		return list, nil
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = whole(kind, raw[i*width:])
	}
	return list, nil
}
