package hf

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

// WriteEach writes a safetensors file of float32 tensors that each provides one at a
// time, in any order: it calls use for each tensor in want, whose Data is ignored. So
// only one tensor has to be in memory.
func WriteEach(f io.WriterAt, want model.Weights, each func(use func(model.Tensor) error) error) error {
	layouts, begin, end := make([]Layout, len(want)), map[string]int64{}, int64(0)
	shapes := map[string][]int{}
	for i, t := range want {
		layouts[i] = Layout{t.Name, F32, t.Shape}
		begin[t.Name], shapes[t.Name] = end, t.Shape
		end += layouts[i].Bytes()
	}
	text, err := encodeHeader(layouts, nil)
	if err != nil {
		return err
	}
	text = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if _, err := f.WriteAt(text, 0); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	if err := each(func(t model.Tensor) error {
		at, ok := begin[t.Name]
		if !ok {
			return fmt.Errorf("%w: tensor %s belongs to no part of the architecture, or is there twice", ErrFormat, t.Name)
		}
		if !slices.Equal(t.Shape, shapes[t.Name]) || len(t.Data) != t.Size() {
			return fmt.Errorf("%w: tensor %s has shape %v and %d numbers, want %v", ErrFormat, t.Name, t.Shape, len(t.Data), shapes[t.Name])
		}
		delete(begin, t.Name)
		return writeFloats(io.NewOffsetWriter(f, int64(len(text))+at), t.Data)
	}); err != nil {
		return err
	}
	for name := range begin {
		return fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
	}
	return nil
}

// writeFloats converts and writes numbers in chunks.
func writeFloats(w io.Writer, numbers []float32) error {
	var b []byte
	for some := range slices.Chunk(numbers, chunk/4) {
		var err error
		if b, err = F32.AppendFloats(b[:0], some); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
