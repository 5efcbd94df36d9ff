package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model/half"
)

// Entry describes a tensor to write.
type Entry struct {
	Name  string
	Shape []int // row-major
	Type  Type  // F32, F16, BF16 or Q8_0
}

func (e Entry) numbers() int64 {
	n := int64(1)
	for _, d := range e.Shape {
		n *= int64(d)
	}
	return n
}

// Writer writes a file from its beginning to its end.
type Writer struct {
	w       io.Writer
	entries []Entry
	// current is the index of the entry that is being written. left is how many numbers
	// it still needs. at is how many bytes of data are written.
	current  int
	left, at int64
	buffer   []byte
}

// NewWriter writes the metadata and the list of tensors. Write takes their numbers, in
// the order of the list.
func NewWriter(w io.Writer, m Metadata, entries []Entry) (*Writer, error) {
	b := append([]byte(magic), 3, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(entries)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(m)))
	var err error
	for _, p := range m {
		if b, err = appendValue(appendText(b, p.Key), p.Value); err != nil {
			return nil, fmt.Errorf("key %s: %w", p.Key, err)
		}
	}
	offset := int64(0)
	for _, e := range entries {
		form, ok := e.Type.form()
		if !ok || len(e.Shape) < 1 || len(e.Shape) > maxNesting {
			return nil, fmt.Errorf("tensor %s of type %s and shape %v cannot be written", e.Name, e.Type, e.Shape)
		}
		if _, ok := form.row(int64(e.Shape[len(e.Shape)-1])); !ok {
			return nil, fmt.Errorf("tensor %s: rows of shape %v are not whole blocks of %s", e.Name, e.Shape, e.Type)
		}
		b = binary.LittleEndian.AppendUint32(appendText(b, e.Name), uint32(len(e.Shape)))
		for i := range e.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(e.Shape[len(e.Shape)-1-i]))
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		bytes, _ := form.row(e.numbers())
		offset = aligned(offset+bytes, plainAlignment)
	}
	b = append(b, make([]byte, aligned(int64(len(b)), plainAlignment)-int64(len(b)))...)
	if _, err := w.Write(b); err != nil {
		return nil, fmt.Errorf("write header: %w", err)
	}
	out := &Writer{w: w, entries: entries, current: -1}
	return out, out.next()
}

// next begins the next tensor, where the alignment allows.
func (w *Writer) next() error {
	w.current++
	if w.current < len(w.entries) {
		w.left = w.entries[w.current].numbers()
	}
	gap := aligned(w.at, plainAlignment) - w.at
	w.at += gap
	if _, err := w.w.Write(make([]byte, gap)); err != nil {
		return fmt.Errorf("write tensors: %w", err)
	}
	return nil
}

// Write appends numbers, as whole blocks, to the first tensor that is not complete.
func (w *Writer) Write(numbers []float32) error {
	if w.current >= len(w.entries) || int64(len(numbers)) > w.left {
		return fmt.Errorf("write tensors: %d numbers too many", len(numbers))
	}
	e := w.entries[w.current]
	var err error
	if w.buffer, err = Encode(w.buffer[:0], e.Type, numbers); err != nil {
		return fmt.Errorf("write tensor %s: %w", e.Name, err)
	}
	if _, err := w.w.Write(w.buffer); err != nil {
		return fmt.Errorf("write tensor %s: %w", e.Name, err)
	}
	w.at += int64(len(w.buffer))
	if w.left -= int64(len(numbers)); w.left == 0 {
		return w.next()
	}
	return nil
}

// Close returns an error if a tensor is not complete.
func (w *Writer) Close() error {
	if w.current < len(w.entries) {
		return fmt.Errorf("write tensor %s: %d numbers are missing", w.entries[w.current].Name, w.left)
	}
	return nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendValue(b []byte, value any) ([]byte, error) {
	kind := func(k uint32) []byte { return binary.LittleEndian.AppendUint32(b, k) }
	list := func(k uint32, n int) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(kind(valueArray), k), uint64(n))
	}
	switch v := value.(type) {
	case string:
		return appendText(kind(valueString), v), nil
	case bool:
		if v {
			return append(kind(valueBool), 1), nil
		}
		return append(kind(valueBool), 0), nil
	case uint32:
		return binary.LittleEndian.AppendUint32(kind(valueU32), v), nil
	case float32:
		return binary.LittleEndian.AppendUint32(kind(valueF32), math.Float32bits(v)), nil
	case []string:
		b = list(valueString, len(v))
		for _, s := range v {
			b = appendText(b, s)
		}
		return b, nil
	case []int32:
		b = list(valueI32, len(v))
		for _, n := range v {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
		return b, nil
	case []float32:
		b = list(valueF32, len(v))
		for _, n := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(n))
		}
		return b, nil
	}
	return nil, fmt.Errorf("%T is not written", value)
}

// Encode appends numbers to b as type t: F32, F16, BF16 or Q8_0. For Q8_0 the numbers
// have to fill whole blocks. It returns an error for a number that F16 cannot hold, and
// for a number that is not finite if t is Q8_0.
func Encode(b []byte, t Type, numbers []float32) ([]byte, error) {
	switch t {
	case F32:
		for _, x := range numbers {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	case F16:
		return half.AppendF16(b, numbers)
	case BF16:
		return half.AppendBF16(b, numbers), nil
	case Q8_0:
		if len(numbers)%32 != 0 {
			return nil, fmt.Errorf("%d numbers are not whole blocks of Q8_0", len(numbers))
		}
		for ; len(numbers) > 0; numbers = numbers[32:] {
			var err error
			if b, err = encodeQ8_0(b, numbers[:32]); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("%s is not written: F32, F16, BF16 and Q8_0 are", t)
	}
	return b, nil
}

// encodeQ8_0 appends a block: its factor and 32 numbers.
func encodeQ8_0(b []byte, numbers []float32) ([]byte, error) {
	for _, x := range numbers {
		if x != x {
			return nil, fmt.Errorf("%v cannot be quantized", x)
		}
	}
	var block [half.QuantBlock]int8
	factor := half.Quantize(&block, numbers)
	if math.IsInf(float64(factor), 0) {
		return nil, fmt.Errorf("%v is beyond the numbers of Q8_0", slices.MaxFunc(numbers, func(x, y float32) int { return cmp.Compare(max(x, -x), max(y, -y)) }))
	}
	b = binary.LittleEndian.AppendUint16(b, half.ToF16(factor))
	for _, q := range block {
		b = append(b, byte(q))
	}
	return b, nil
}
