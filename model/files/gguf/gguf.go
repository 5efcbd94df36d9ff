// Package gguf reads and writes GGUF files, in which llama.cpp keeps a model: metadata by
// key, and tensors, most of them quantized in blocks. The format is described in
// docs/gguf.md of ggml-org/ggml. Versions 2 and 3 are read and version 3 is written, both
// little-endian.
//
// The package knows the container and the arithmetic of its blocks. It does not know what
// keys and tensors mean; package convert does. It quantizes only to F16, BF16 and Q8_0,
// and reads the types that Supported lists. The error for another type names it.
//
// Guarantees: a tensor is read a few rows at a time, so that memory does not grow with
// the file. Numbers are, to the bit, those of llama.cpp's reference code. Every count,
// length, offset and dimension is checked against the file's size before anything is
// allocated for it, so that a truncated, inconsistent or hostile file gives an error that
// wraps [ErrFormat] and no panic.
package gguf

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
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

// Type is how a tensor's numbers are stored, numbered as in files.
type Type uint32

// The types that are read. Those with an underscore store blocks of numbers with a
// common scale.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// form holds the size of a type's blocks and the function that decodes them.
type form struct {
	numbers, bytes int
	// decode decodes whole blocks; dst has room for exactly their numbers.
	decode func(dst []float32, src []byte)
}

func (t Type) form() (form, bool) {
	switch t {
	case F32:
		return form{1, 4, decodeF32}, true
	case F16:
		return form{1, 2, decodeF16}, true
	case BF16:
		return form{1, 2, decodeBF16}, true
	case Q4_0:
		return form{32, 18, blocks(32, 18, decodeQ4_0)}, true
	case Q4_1:
		return form{32, 20, blocks(32, 20, decodeQ4_1)}, true
	case Q5_0:
		return form{32, 22, blocks(32, 22, decodeQ5_0)}, true
	case Q5_1:
		return form{32, 24, blocks(32, 24, decodeQ5_1)}, true
	case Q8_0:
		return form{32, 34, blocks(32, 34, decodeQ8_0)}, true
	case Q4_K:
		return form{256, 144, blocks(256, 144, decodeQ4_K)}, true
	case Q5_K:
		return form{256, 176, blocks(256, 176, decodeQ5_K)}, true
	case Q6_K:
		return form{256, 210, blocks(256, 210, decodeQ6_K)}, true
	}
	return form{}, false
}

// Quantized reports whether t stores numbers in blocks with a common scale.
func (t Type) Quantized() bool { return t != F32 && t != F16 && t != BF16 }

// Supported returns the types that can be read.
func Supported() []Type {
	return []Type{F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K}
}

// String returns the type's name in llama.cpp.
func (t Type) String() string {
	if name, ok := typeNames()[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// ParseType finds a type by its name, such as "q8_0".
func ParseType(name string) (Type, error) {
	for _, t := range Supported() {
		if strings.EqualFold(t.String(), name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("%q is not one of %s", name, supportedNames())
}

func supportedNames() string {
	var names []string
	for _, t := range Supported() {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

// typeNames also has the types that are refused, for the error.
func typeNames() map[Type]string {
	names := map[Type]string{
		F32: "F32", F16: "F16", Q4_0: "Q4_0", Q4_1: "Q4_1", Q5_0: "Q5_0", Q5_1: "Q5_1", Q8_0: "Q8_0",
		Q4_K: "Q4_K", Q5_K: "Q5_K", Q6_K: "Q6_K", BF16: "BF16",
		9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
	}
	others := strings.Fields("IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M")
	for i, name := range others {
		names[Type(16+i)] = name
	}
	return names
}

// row returns how many bytes width numbers take. ok is false if they are not whole
// blocks.
func (f form) row(width int64) (bytes int64, ok bool) {
	n := int64(f.numbers)
	return width / n * int64(f.bytes), width%n == 0
}

// Pair is a key with its value. A value that was read is a string, bool, int64, uint64,
// float32, float64, or a list of strings, bools, int64 or float64; smaller types are
// widened. A value to write is a string, bool, uint32, float32, []string, []int32 or
// []float32.
type Pair struct {
	Key   string
	Value any
}

// Metadata holds the pairs of a file, in their order.
type Metadata []Pair

// value returns the value of a key, nil if there is none.
func (m Metadata) value(key string) any {
	for _, p := range m {
		if p.Key == key {
			return p.Value
		}
	}
	return nil
}

// Has reports whether there is such a key.
func (m Metadata) Has(key string) bool { return m.value(key) != nil }

// String returns the text of a key, "" if there is none.
func (m Metadata) String(key string) (string, error) {
	s, ok := m.value(key).(string)
	if !ok && m.Has(key) {
		return "", m.mistyped(key, "a string")
	}
	return s, nil
}

// Bool returns the truth value of a key, false if there is none.
func (m Metadata) Bool(key string) (bool, error) {
	b, ok := m.value(key).(bool)
	if !ok && m.Has(key) {
		return false, m.mistyped(key, "a truth value")
	}
	return b, nil
}

// Int returns the whole number of a key, otherwise if there is none.
func (m Metadata) Int(key string, otherwise int) (int, error) {
	var n int64
	switch v := m.value(key).(type) {
	case nil:
		return otherwise, nil
	case int64:
		n = v
	case uint64:
		if v > math.MaxInt32 {
			return 0, fmt.Errorf("%w: %s is %d", ErrFormat, key, v)
		}
		n = int64(v)
	default:
		return 0, m.mistyped(key, "a whole number")
	}
	if n < math.MinInt32 || n > math.MaxInt32 {
		return 0, fmt.Errorf("%w: %s is %d", ErrFormat, key, n)
	}
	return int(n), nil
}

// Float returns the number of a key, and otherwise if the key is absent. A number of 32
// bits becomes the shortest decimal that rounds to it: a publisher's 1e-5 does not become
// 9.999999747378752e-06.
func (m Metadata) Float(key string, otherwise float64) (float64, error) {
	x := otherwise
	switch v := m.value(key).(type) {
	case nil:
	case float32:
		x = shortest(v)
	case float64:
		x = v
	default:
		return 0, m.mistyped(key, "a number")
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("%w: %s is %v", ErrFormat, key, x)
	}
	return x, nil
}

// Strings returns the texts of a key, nil if there is none.
func (m Metadata) Strings(key string) ([]string, error) {
	s, ok := m.value(key).([]string)
	if !ok && m.Has(key) {
		return nil, m.mistyped(key, "a list of strings")
	}
	return s, nil
}

// Ints returns the whole numbers of a key, nil if there is none.
func (m Metadata) Ints(key string) ([]int64, error) {
	list, ok := m.value(key).([]int64)
	if !ok && m.Has(key) {
		return nil, m.mistyped(key, "a list of whole numbers")
	}
	return list, nil
}

// Floats returns the numbers of a key, nil if there is none.
func (m Metadata) Floats(key string) ([]float64, error) {
	list, ok := m.value(key).([]float64)
	if !ok && m.Has(key) {
		return nil, m.mistyped(key, "a list of numbers")
	}
	return list, nil
}

func (m Metadata) mistyped(key, want string) error {
	return fmt.Errorf("%w: %s is %T, want %s", ErrFormat, key, m.value(key), want)
}
