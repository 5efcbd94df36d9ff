package hf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/model"
)

// chunk is how many bytes are converted at a time.
const chunk = 1 << 18

// WriteArrays writes a safetensors file. Wider numbers come first, so that all
// data is aligned; else the order given is kept. metadata may be nil.
func WriteArrays(w io.Writer, arrays []Array, metadata map[string]string) error {
	sorted := slices.Clone(arrays)
	slices.SortStableFunc(sorted, func(a, b Array) int {
		da, _, errA := a.dtype()
		db, _, errB := b.dtype()
		if errA != nil || errB != nil {
			return 0 // encodeHeader reports it
		}
		return db.width() - da.width()
	})
	layouts := make([]Layout, len(sorted))
	for i, a := range sorted {
		d, n, err := a.dtype()
		if err != nil {
			return err
		}
		layouts[i] = Layout{a.Name, d, a.Shape}
		if size, ok := layouts[i].size(); ok && size != n {
			return fmt.Errorf("%w: array %s has shape %v and %d numbers", ErrFormat, a.Name, a.Shape, n)
		}
	}
	text, err := encodeHeader(layouts, metadata)
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, max(chunk, len(text)+8)), uint64(len(text)))
	if _, err := w.Write(append(b, text...)); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, a := range sorted {
		if err := a.write(w, b[:0]); err != nil {
			return fmt.Errorf("write tensor %s: %w", a.Name, err)
		}
	}
	return nil
}

func (a Array) write(w io.Writer, buffer []byte) error {
	d, n, err := a.dtype()
	if err != nil {
		return err
	}
	step := chunk / d.width()
	for from := 0; from < n; from += step {
		if _, err := w.Write(a.encode(buffer, from, min(n, from+step))); err != nil {
			return err
		}
	}
	return nil
}

// encodeHeader writes the JSON by itself, because a map would lose the order of the
// layouts. It pads the JSON with spaces to a multiple of 8 bytes.
func encodeHeader(layouts []Layout, metadata map[string]string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	if len(metadata) > 0 {
		b.WriteString(quote(metadataKey) + ":{")
		for i, k := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
				return nil, fmt.Errorf("%w: metadata %q is not UTF-8", ErrFormat, k)
			}
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(k) + ":" + quote(metadata[k]))
		}
		b.WriteByte('}')
	}
	seen, end := map[string]bool{metadataKey: true}, 0
	for _, l := range layouts {
		n, ok := l.size()
		if !ok || l.DType.width() == 0 {
			return nil, fmt.Errorf("%w: array %s has shape %v of %q", ErrFormat, l.Name, l.Shape, l.DType)
		}
		if seen[l.Name] || !utf8.ValidString(l.Name) {
			return nil, fmt.Errorf("%w: array name %q is taken or not UTF-8", ErrFormat, l.Name)
		}
		seen[l.Name] = true
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		begin := end
		end += n * l.DType.width()
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(l.Shape), "[]"), " ", ",")
		fmt.Fprintf(&b, `%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}`, quote(l.Name), l.DType, shape, begin, end)
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > maxHeader {
		return nil, fmt.Errorf("%w: header of %d bytes, the limit is %d", ErrFormat, b.Len(), maxHeader)
	}
	return b.Bytes(), nil
}

// quote returns s, which must be UTF-8, as JSON.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can always be encoded
	}
	return string(b)
}

// ReadArrays reads a safetensors file of size bytes, in the order of its data.
// BF16 and F16 are widened to float32.
func ReadArrays(r io.ReaderAt, size int64) ([]Array, map[string]string, error) {
	h, err := readHeader(r, size)
	if err != nil {
		return nil, nil, err
	}
	arrays := make([]Array, len(h.entries))
	buffer := make([]byte, min(chunk, size))
	for i, e := range h.entries {
		if arrays[i], err = e.read(r, h.data, buffer); err != nil {
			return nil, nil, fmt.Errorf("read tensor %s: %w", e.name, err)
		}
	}
	return arrays, h.metadata, nil
}

func (e entry) read(r io.ReaderAt, base int64, buffer []byte) (Array, error) {
	a := Array{Name: e.name, Shape: make([]int, len(e.Shape))}
	for i, d := range e.Shape {
		a.Shape[i] = int(d)
	}
	width := int64(e.Dtype.width())
	length := e.Offsets[1] - e.Offsets[0]
	a.Data = makeData(e.Dtype, int(length/width))
	step := int64(len(buffer)) / width * width
	for at := int64(0); at < length; at += step {
		b := buffer[:min(step, length-at)]
		if _, err := io.ReadFull(io.NewSectionReader(r, base+e.Offsets[0]+at, int64(len(b))), b); err != nil {
			return Array{}, err
		}
		decode(e.Dtype, a.Data, int(at/width), b)
	}
	return a, nil
}

// WriteSafetensors writes weights as float32 in their order. Equal weights and
// metadata give equal bytes.
func WriteSafetensors(w io.Writer, weights model.Weights, metadata map[string]string) error {
	arrays := make([]Array, len(weights))
	for i, t := range weights {
		arrays[i] = Array{Name: t.Name, Shape: t.Shape, Data: t.Data}
	}
	return WriteArrays(w, arrays, metadata)
}

// ReadSafetensors reads a file of size bytes whose tensors are all F32, BF16 or
// F16, in the order of their data; Arrange puts them into an architecture's.
func ReadSafetensors(r io.ReaderAt, size int64) (model.Weights, map[string]string, error) {
	arrays, metadata, err := ReadArrays(r, size)
	if err != nil {
		return nil, nil, err
	}
	weights := make(model.Weights, len(arrays))
	for i, a := range arrays {
		data, ok := a.Data.([]float32)
		if !ok {
			return nil, nil, fmt.Errorf("%w: tensor %s holds %T, want floating point of at most 32 bits", ErrFormat, a.Name, a.Data)
		}
		weights[i] = model.Tensor{Name: a.Name, Shape: a.Shape, Data: data}
	}
	return weights, metadata, nil
}
