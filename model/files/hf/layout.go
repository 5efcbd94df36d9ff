package hf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model/half"
)

// Layout describes a tensor of a file without its numbers.
type Layout struct {
	Name  string
	DType DType
	Shape []int
}

func (l Layout) size() (n int, ok bool) {
	n = 1
	for _, d := range l.Shape {
		if d < 0 || d > maxDimension || (d > 0 && n > math.MaxInt/d) {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// Bytes returns the number of bytes that the tensor takes.
func (l Layout) Bytes() int64 {
	n, _ := l.size()
	return int64(n) * int64(l.DType.width())
}

// WriteTensors writes a safetensors file whose tensors need not be in memory together. It
// calls write once for each layout. Wider numbers come first, so that all data is
// aligned; otherwise the order of layouts is kept. write has to write exactly the bytes
// of its tensor.
func WriteTensors(w io.Writer, layouts []Layout, metadata map[string]string, write func(l Layout, w io.Writer) error) error {
	layouts = slices.Clone(layouts)
	slices.SortStableFunc(layouts, func(a, b Layout) int { return b.DType.width() - a.DType.width() })
	text, err := encodeHeader(layouts, metadata)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, chunk)
	counted := &counter{w: out}
	if _, err := out.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, l := range layouts {
		counted.n = 0
		if err := write(l, counted); err != nil {
			return fmt.Errorf("write tensor %s: %w", l.Name, err)
		}
		if counted.n != l.Bytes() {
			return fmt.Errorf("%w: tensor %s got %d bytes, want %d", ErrFormat, l.Name, counted.n, l.Bytes())
		}
	}
	return out.Flush()
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// AppendFloats appends numbers as d, one of F32, F16 and BF16. A number that F16 cannot
// hold is an error.
func (d DType) AppendFloats(b []byte, numbers []float32) ([]byte, error) {
	switch d {
	case F32:
		for _, x := range numbers {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	case F16:
		return half.AppendF16(b, numbers)
	case BF16:
		return half.AppendBF16(b, numbers), nil
	default:
		return nil, fmt.Errorf("%s is not written", d)
	}
	return b, nil
}
