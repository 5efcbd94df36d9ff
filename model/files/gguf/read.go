package gguf

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Limits of a header, far above those of published models. They bound what a file can
// make a reader allocate.
const (
	maxHeader      = 256 << 20 // bytes before the tensors' numbers
	maxElements    = 1 << 24   // of an array
	maxNesting     = 4         // dimensions, as in ggml
	maxDimension   = math.MaxInt32
	magic          = "GGUF"
	alignmentKey   = "general.alignment"
	plainAlignment = 32
)

// Open reads the metadata and the list of tensors of a file of size bytes. r is needed as
// long as the tensors are read.
func Open(r io.ReaderAt, size int64) (*File, error) {
	limit := min(size, maxHeader)
	h := &header{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, limit), 1<<16), left: limit, cut: limit < size}
	f := &File{r: r}
	err := h.file(f, size)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// header reads the beginning of a file; left is how many bytes may be left of it.
type header struct {
	r    *bufio.Reader
	left int64
	cut  bool // whether the limit of a header ends before the file does
	at   int64
	// buffer is for reading numbers of fixed width.
	buffer [8]byte
}

func (h *header) file(f *File, size int64) error {
	var start [4]byte
	if err := h.read(start[:]); err != nil {
		return err
	}
	if string(start[:]) != magic {
		return fmt.Errorf("%w: it begins with %q, want %q", ErrFormat, start, magic)
	}
	version, err := h.u32()
	if err != nil {
		return err
	}
	if version != 2 && version != 3 {
		if version&0xffff == 0 {
			return fmt.Errorf("%w: it is big-endian", ErrUnsupported)
		}
		return fmt.Errorf("%w: version %d, want 2 or 3", ErrUnsupported, version)
	}
	tensors, err := h.count("tensors", 33)
	if err != nil {
		return err
	}
	pairs, err := h.count("metadata pairs", 13)
	if err != nil {
		return err
	}
	if f.Metadata, err = h.metadata(pairs); err != nil {
		return err
	}
	if f.Tensors, err = h.tensors(f, tensors); err != nil {
		return err
	}
	alignment, err := f.Metadata.Int(alignmentKey, plainAlignment)
	if err != nil {
		return err
	}
	if alignment < 1 || alignment&(alignment-1) != 0 {
		return fmt.Errorf("%w: %s is %d, want a power of two", ErrFormat, alignmentKey, alignment)
	}
	return f.place(aligned(h.at, int64(alignment)), size, int64(alignment))
}

func aligned(n, alignment int64) int64 { return (n + alignment - 1) / alignment * alignment }

// place converts the tensors' offsets, which count from data on, to offsets in the file.
// It checks that each tensor lies within the file and that no two overlap.
func (f *File) place(data, size, alignment int64) error {
	order := make([]int, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		order[i] = i
		bytes := t.bytes()
		if t.begin%alignment != 0 {
			return fmt.Errorf("%w: tensor %s begins at byte %d, no multiple of %d", ErrFormat, t.Name, t.begin, alignment)
		}
		if t.begin > size-data || bytes > size-data-t.begin {
			return fmt.Errorf("%w: tensor %s has bytes %d to %d of the data, the file has %d: it is cut off",
				ErrFormat, t.Name, t.begin, t.begin+bytes, max(size-data, 0))
		}
		t.begin += data
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(f.Tensors[a].begin, f.Tensors[b].begin) })
	for i := 1; i < len(order); i++ {
		before, t := f.Tensors[order[i-1]], f.Tensors[order[i]]
		if before.begin+before.bytes() > t.begin {
			return fmt.Errorf("%w: tensors %s and %s overlap", ErrFormat, before.Name, t.Name)
		}
	}
	return nil
}

func (t Tensor) bytes() int64 { return int64(t.Rows()) * int64(t.RowBytes()) }

func (h *header) tensors(f *File, n int) ([]Tensor, error) {
	tensors, seen := make([]Tensor, n), make(map[string]bool, n)
	for i := range tensors {
		t, err := h.tensor()
		if err != nil {
			return nil, fmt.Errorf("tensor %d of %d: %w", i+1, n, err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("%w: tensor %s occurs twice", ErrFormat, t.Name)
		}
		seen[t.Name] = true
		t.file = f
		tensors[i] = t
	}
	return tensors, nil
}

func (h *header) tensor() (t Tensor, err error) {
	if t.Name, err = h.text(); err != nil {
		return t, err
	}
	dimensions, err := h.u32()
	if err != nil {
		return t, err
	}
	if dimensions < 1 || dimensions > maxNesting {
		return t, fmt.Errorf("%w: tensor %q has %d dimensions, want 1 to %d", ErrFormat, t.Name, dimensions, maxNesting)
	}
	t.Shape = make([]int, dimensions)
	numbers := int64(1)
	for i := range t.Shape {
		d, err := h.u64()
		if err != nil {
			return t, err
		}
		if d < 1 || d > maxDimension || numbers > math.MaxInt64/4/int64(d) {
			return t, fmt.Errorf("%w: tensor %q: dimension %d is %d", ErrFormat, t.Name, i, d)
		}
		numbers *= int64(d)
		t.Shape[len(t.Shape)-1-i] = int(d)
	}
	kind, err := h.u32()
	if err != nil {
		return t, err
	}
	t.Type = Type(kind)
	form, ok := t.Type.form()
	if !ok {
		return t, fmt.Errorf("%w: tensor %q is %s; %s are read", ErrUnsupported, t.Name, t.Type, supportedNames())
	}
	if _, ok := form.row(int64(t.Width())); !ok {
		return t, fmt.Errorf("%w: tensor %q has rows of %d numbers, not whole blocks of %s", ErrFormat, t.Name, t.Width(), t.Type)
	}
	offset, err := h.u64()
	if err == nil && offset > math.MaxInt64/2 {
		err = fmt.Errorf("%w: tensor %q has the offset %d", ErrFormat, t.Name, offset)
	}
	t.begin = int64(offset)
	return t, err
}

// shortest returns the decimal that a publisher most likely wrote for x.
func shortest(x float32) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil {
		return float64(x) // not finite
	}
	return y
}

// read fills b.
func (h *header) read(b []byte) error {
	if int64(len(b)) > h.left {
		return h.short(int64(len(b)))
	}
	if _, err := io.ReadFull(h.r, b); err != nil {
		return fmt.Errorf("read byte %d: %w", h.at, err)
	}
	h.left -= int64(len(b))
	h.at += int64(len(b))
	return nil
}

func (h *header) short(want int64) error {
	if h.cut {
		return fmt.Errorf("%w: its header has more than %d bytes", ErrFormat, maxHeader)
	}
	return fmt.Errorf("%w: %d bytes from byte %d on are beyond its end: it is cut off", ErrFormat, want, h.at)
}

func (h *header) u32() (uint32, error) {
	err := h.read(h.buffer[:4])
	return binary.LittleEndian.Uint32(h.buffer[:]), err
}

func (h *header) u64() (uint64, error) {
	err := h.read(h.buffer[:8])
	return binary.LittleEndian.Uint64(h.buffer[:]), err
}

// count reads how many items follow. Each item takes at least the given number of bytes,
// so a count that cannot fit into the file is an error.
func (h *header) count(what string, bytes int64) (int, error) {
	n, err := h.u64()
	if err == nil && n > uint64(h.left/bytes) {
		err = fmt.Errorf("%w: %d %s in %d bytes", ErrFormat, n, what, h.left)
	}
	return int(n), err
}

func (h *header) text() (string, error) {
	n, err := h.u64()
	if err != nil {
		return "", err
	}
	if n > uint64(h.left) {
		return "", h.short(int64(min(n, math.MaxInt64)))
	}
	b := make([]byte, n)
	err = h.read(b)
	return string(b), err
}
