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

	"github.com/fulgurite/fulgurite/model/half"
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

// The layouts of blocks follow ggml's ggml-common.h. The arithmetic follows
// dequantize_row_* in its ggml-quants.c. Each product is converted to float32 before
// something is added to it; otherwise a compiler may fuse both operations and give other
// bits.

func decodeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float16(src[2*i:])
	}
}

func decodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half.FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func float16(src []byte) float32 { return half.FromF16(binary.LittleEndian.Uint16(src)) }

// blocks returns a function that applies one, which decodes one block, to all blocks.
func blocks(numbers, bytes int, one func(dst []float32, src []byte)) func(dst []float32, src []byte) {
	return func(dst []float32, src []byte) {
		for len(dst) > 0 {
			one(dst[:numbers], src[:bytes])
			dst, src = dst[numbers:], src[bytes:]
		}
	}
}

// decodeQ4_0 decodes a block of: scale; then 4 bits per number, those of the first half
// in the low bits.
func decodeQ4_0(dst []float32, src []byte) {
	d := float16(src)
	for i, b := range src[2:18] {
		dst[i] = d * float32(int(b&15)-8)
		dst[i+16] = d * float32(int(b>>4)-8)
	}
}

// decodeQ4_1 decodes a block of: scale, minimum; then the bits of Q4_0.
func decodeQ4_1(dst []float32, src []byte) {
	d, m := float16(src), float16(src[2:])
	for i, b := range src[4:20] {
		dst[i] = float32(d*float32(b&15)) + m
		dst[i+16] = float32(d*float32(b>>4)) + m
	}
}

// decodeQ5_0 decodes a block of: scale, the fifth bits of all numbers; then the bits of
// Q4_0.
func decodeQ5_0(dst []float32, src []byte) {
	d, high := float16(src), binary.LittleEndian.Uint32(src[2:])
	for i, b := range src[6:22] {
		dst[i] = d * float32(int(b&15)+int(high>>i&1)<<4-16)
		dst[i+16] = d * float32(int(b>>4)+int(high>>(i+16)&1)<<4-16)
	}
}

// decodeQ5_1 decodes a block of: scale, minimum; then the bits of Q5_0.
func decodeQ5_1(dst []float32, src []byte) {
	d, m, high := float16(src), float16(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for i, b := range src[8:24] {
		dst[i] = float32(d*float32(int(b&15)+int(high>>i&1)<<4)) + m
		dst[i+16] = float32(d*float32(int(b>>4)+int(high>>(i+16)&1)<<4)) + m
	}
}

// decodeQ8_0 decodes a block of: scale; then signed bytes.
func decodeQ8_0(dst []float32, src []byte) {
	d := float16(src)
	for i, b := range src[2:34] {
		dst[i] = d * float32(int8(b))
	}
}

// scaleAndMin returns the 6-bit scale and minimum of sub-block j of a Q4_K or Q5_K block.
// The first four of each are in the low bits of 8 bytes. The last 4 bytes hold nibbles
// for the other four, which the upper bits of those 8 bytes complete.
func scaleAndMin(packed []byte, j int) (scale, least float32) {
	if j < 4 {
		return float32(packed[j] & 63), float32(packed[j+4] & 63)
	}
	return float32(packed[j+4]&15 | packed[j-4]>>6<<4), float32(packed[j+4]>>4 | packed[j]>>6<<4)
}

// decodeQ4_K decodes a block of: scale of the scales, scale of the minima, 8 of each in 6
// bits; then 4 bits per number, in groups of 64 whose first half is in the low bits.
func decodeQ4_K(dst []float32, src []byte) {
	d, dmin := float16(src), float16(src[2:])
	for j := range 8 {
		scale, least := scaleAndMin(src[4:16], j)
		scale, least = d*scale, dmin*least
		for i, b := range src[16+32*(j/2):][:32] {
			dst[32*j+i] = float32(scale*float32(b>>(4*(j%2))&15)) - least
		}
	}
}

// decodeQ5_K is like decodeQ4_K, but 32 bytes behind the scales hold the fifth bits: that
// of number i of sub-block j is bit j of byte i.
func decodeQ5_K(dst []float32, src []byte) {
	d, dmin := float16(src), float16(src[2:])
	high := src[16:48]
	for j := range 8 {
		scale, least := scaleAndMin(src[4:16], j)
		scale, least = d*scale, dmin*least
		for i, b := range src[48+32*(j/2):][:32] {
			q := b>>(4*(j%2))&15 | high[i]>>j&1<<4
			dst[32*j+i] = float32(scale*float32(q)) - least
		}
	}
}

// decodeQ6_K decodes a block of: 4 low bits per number, 2 high bits per number, 16 signed
// scales of one byte, the scale of the scales. Its two halves of 128 numbers follow each
// other. In a half, sub-block j of 32 numbers has its low bits from byte 32·(j mod 2) on,
// and its high bits at bit 2j.
func decodeQ6_K(dst []float32, src []byte) {
	d := float16(src[208:])
	for n := range 2 {
		low, high, scales := src[64*n:], src[128+32*n:], src[192+8*n:]
		for j := range 4 {
			for i := range 32 {
				q := low[32*(j%2)+i]>>(4*(j/2))&15 | high[i]>>(2*j)&3<<4
				scale := d * float32(int8(scales[2*j+i/16]))
				dst[128*n+32*j+i] = scale * float32(int(q)-32)
			}
		}
	}
}
