package gguf

import (
	"errors"
	"fmt"
	"io"
)

// ErrFormat is wrapped when a file is not what the format demands.
var ErrFormat = errors.New("bad GGUF file")

// ErrUnsupported is wrapped, with the name of the feature, when a file uses a feature
// that is not supported.
var ErrUnsupported = errors.New("unsupported GGUF file")

// File is an open file, whose metadata is in memory and whose tensors are not.
type File struct {
	Metadata Metadata
	Tensors  []Tensor // in the order of the file's list

	r io.ReaderAt
}

// Tensor describes a tensor. Shape is row-major, the reverse of how files list it: its
// last dimension is the length of a row.
type Tensor struct {
	Name  string
	Shape []int
	Type  Type

	file  *File
	begin int64 // of its numbers in the file
}

// Find returns the tensor of that name.
func (f *File) Find(name string) (Tensor, bool) {
	for _, t := range f.Tensors {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}

// Width returns how many numbers a row has.
func (t Tensor) Width() int { return t.Shape[len(t.Shape)-1] }

// Rows returns the number of rows.
func (t Tensor) Rows() int {
	n := 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		n *= d
	}
	return n
}

// RowBytes returns the size of a row in the file.
func (t Tensor) RowBytes() int {
	form, _ := t.Type.form() // Open has checked the type
	n, _ := form.row(int64(t.Width()))
	return int(n)
}

// ReadRows fills raw with rows as the file stores them, from row first on. The length of
// raw must be a whole number of rows.
func (t Tensor) ReadRows(raw []byte, first int) error {
	row := t.RowBytes()
	if n := len(raw) / row; len(raw)%row != 0 || first < 0 || first+n > t.Rows() {
		return fmt.Errorf("read tensor %s: %d bytes from row %d of %d", t.Name, len(raw), first, t.Rows())
	}
	if _, err := io.ReadFull(io.NewSectionReader(t.file.r, t.begin+int64(first)*int64(row), int64(len(raw))), raw); err != nil {
		return fmt.Errorf("read tensor %s: %w", t.Name, err)
	}
	return nil
}

// Decode converts raw, which holds whole rows of t, to float32 and stores them in dst.
func (t Tensor) Decode(dst []float32, raw []byte) {
	form, _ := t.Type.form()
	form.decode(dst[:len(raw)/form.bytes*form.numbers], raw)
}
