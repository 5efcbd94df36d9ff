package hf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/half"
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

// ErrFormat is wrapped when a file is not what its format demands.
var ErrFormat = errors.New("bad model file")

const (
	metadataKey = "__metadata__"
	// maxHeader is the limit of the safetensors reference implementation.
	maxHeader = 100_000_000
)

// entry is one tensor of a header. Offsets count from the end of the header.
type entry struct {
	name    string
	Dtype   DType   `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// header is the description at the start of a safetensors file: a length of 8
// bytes, little-endian, then JSON.
type header struct {
	entries  []entry // in the order of their data
	metadata map[string]string
	data     int64 // where the data begins
}

// readHeader reads and validates the header of a file of size bytes. What it
// returns can be trusted: entries cover the data exactly, without gap or
// overlap, and their shapes agree with their bytes.
func readHeader(r io.ReaderAt, size int64) (header, error) {
	var prefix [8]byte
	if size < int64(len(prefix)) {
		return header{}, fmt.Errorf("%w: %d bytes are too few for a header", ErrFormat, size)
	}
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return header{}, fmt.Errorf("read header length: %w", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > maxHeader || int64(length) > size-8 {
		return header{}, fmt.Errorf("%w: header of %d bytes in a file of %d", ErrFormat, length, size)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(r, 8, int64(length)), text); err != nil {
		return header{}, fmt.Errorf("read header: %w", err)
	}
	h := header{data: 8 + int64(length)}
	if err := h.parse(text); err != nil {
		return header{}, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	if err := h.check(size - h.data); err != nil {
		return header{}, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return h, nil
}

// parse walks the JSON object itself, because a map would hide a name that
// occurs twice.
func (h *header) parse(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return fmt.Errorf("key %v is not a string", t)
		}
		if seen[name] {
			return fmt.Errorf("%q occurs twice", name)
		}
		seen[name] = true
		if name == metadataKey {
			if err := d.Decode(&h.metadata); err != nil {
				return fmt.Errorf("%s: %w", metadataKey, err)
			}
			continue
		}
		e := entry{name: name}
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		h.entries = append(h.entries, e)
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

func (h *header) check(size int64) error {
	for _, e := range h.entries {
		if err := e.check(size); err != nil {
			return fmt.Errorf("tensor %q: %w", e.name, err)
		}
	}
	// Tensors without numbers begin at the same offset as a neighbour. Sorting by the end
	// puts them before it.
	slices.SortStableFunc(h.entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]), cmp.Compare(a.Offsets[1], b.Offsets[1]))
	})
	end := int64(0)
	for _, e := range h.entries {
		if e.Offsets[0] != end {
			return fmt.Errorf("tensor %q begins at byte %d, the one before it ends at %d", e.name, e.Offsets[0], end)
		}
		end = e.Offsets[1]
	}
	if end != size {
		return fmt.Errorf("tensors have %d bytes, the file has %d for them", end, size)
	}
	return nil
}

func (e entry) check(size int64) error {
	width := int64(e.Dtype.width())
	if width == 0 {
		return fmt.Errorf("type %q is not supported", e.Dtype)
	}
	if e.Shape == nil || len(e.Offsets) != 2 {
		return fmt.Errorf("shape %v and data_offsets %v", e.Shape, e.Offsets)
	}
	begin, end := e.Offsets[0], e.Offsets[1]
	if begin < 0 || end < begin || end > size {
		return fmt.Errorf("bytes %d to %d of %d", begin, end, size)
	}
	n := int64(1)
	if slices.Contains(e.Shape, 0) {
		n = 0
	}
	for _, d := range e.Shape {
		// Compare before multiplying, so that no product overflows.
		if d < 0 || d > maxDimension || (d > 0 && n > size/d) {
			return fmt.Errorf("shape %v in a file with %d bytes of data", e.Shape, size)
		}
		n *= d
	}
	if n > size || n*width != end-begin {
		return fmt.Errorf("shape %v of %s in %d bytes", e.Shape, e.Dtype, end-begin)
	}
	return nil
}

// maxDimension keeps shapes within int on every platform.
const maxDimension = 1<<31 - 1

// Element is a type of number that an Array can hold.
type Element interface {
	float32 | float64 | int32 | uint8
}

// Array is a named dense array, row-major. Data is a []float32, []float64,
// []int32 or []uint8 (files call them F32, F64, I32 and U8) with as many numbers
// as Shape says.
type Array struct {
	Name  string
	Shape []int
	Data  any
}

// NewArray returns an array of rank 1 that shares data.
func NewArray[E Element](name string, data []E) Array {
	return Array{Name: name, Shape: []int{len(data)}, Data: data}
}

// Find returns the numbers of the array of that name and type.
func Find[E Element](arrays []Array, name string) ([]E, error) {
	for _, a := range arrays {
		if a.Name != name {
			continue
		}
		data, ok := a.Data.([]E)
		if !ok {
			return nil, fmt.Errorf("%w: array %s holds %T, want %T", ErrFormat, name, a.Data, data)
		}
		return data, nil
	}
	return nil, fmt.Errorf("%w: array %s is absent", ErrFormat, name)
}

// DType is how a file spells a type of number.
type DType string

// The types of a model's weights, and bytes.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	U8   DType = "U8"
)

// Other types of arrays.
const (
	f64 DType = "F64"
	i32 DType = "I32"
)

// width returns the number of bytes of one number, and 0 for a type that is not read.
func (d DType) width() int {
	switch d {
	case f64:
		return 8
	case F32, i32:
		return 4
	case F16, BF16:
		return 2
	case U8:
		return 1
	}
	return 0
}

// dtype returns the type in which a is written, and how many numbers it has.
func (a Array) dtype() (DType, int, error) {
	switch data := a.Data.(type) {
	case []float64:
		return f64, len(data), nil
	case []float32:
		return F32, len(data), nil
	case []int32:
		return i32, len(data), nil
	case []uint8:
		return U8, len(data), nil
	}
	return "", 0, fmt.Errorf("%w: array %s holds %T", ErrFormat, a.Name, a.Data)
}

// encode appends numbers [from, to) of a to b, little-endian.
func (a Array) encode(b []byte, from, to int) []byte {
	switch data := a.Data.(type) {
	case []float64:
		for _, x := range data[from:to] {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	case []float32:
		for _, x := range data[from:to] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	case []int32:
		for _, x := range data[from:to] {
			b = binary.LittleEndian.AppendUint32(b, uint32(x))
		}
	case []uint8:
		b = append(b, data[from:to]...)
	}
	return b
}

// makeData allocates n numbers of the type that d is read into: half precision
// is widened, which is exact.
func makeData(d DType, n int) any {
	switch d {
	case f64:
		return make([]float64, n)
	case i32:
		return make([]int32, n)
	case U8:
		return make([]uint8, n)
	}
	return make([]float32, n)
}

// decode fills data from index at on with the numbers in b, which have type d.
func decode(d DType, data any, at int, b []byte) {
	switch data := data.(type) {
	case []float64:
		for i := range len(b) / 8 {
			data[at+i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	case []int32:
		for i := range len(b) / 4 {
			data[at+i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case []uint8:
		copy(data[at:], b)
	case []float32:
		decodeFloats(d, data[at:], b)
	}
}

func decodeFloats(d DType, out []float32, b []byte) {
	switch d {
	case F32:
		for i := range len(b) / 4 {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case BF16:
		for i := range len(b) / 2 {
			out[i] = half.FromBF16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case F16:
		for i := range len(b) / 2 {
			out[i] = half.FromF16(binary.LittleEndian.Uint16(b[2*i:]))
		}
	}
}

// StreamSafetensors is like ReadSafetensors, but reads a file of size bytes once, from
// its beginning to its end. Besides the tensors it needs memory only for the header.
func StreamSafetensors(r io.Reader, size int64) (model.Weights, map[string]string, error) {
	return ReadSafetensors(&stream{r: r}, size)
}

// StreamArrays is like ReadArrays, but reads a file of size bytes once, from its
// beginning to its end.
func StreamArrays(r io.Reader, size int64) ([]Array, map[string]string, error) {
	return ReadArrays(&stream{r: r}, size)
}

// EachArray calls use for each array of a safetensors file of size bytes, in the order of
// its data, and returns its error. The file is read once, from its beginning on; only one
// array is in memory.
func EachArray(r io.Reader, size int64, use func(Array) error) error {
	from := &stream{r: r}
	h, err := readHeader(from, size)
	if err != nil {
		return err
	}
	buffer := make([]byte, min(chunk, size))
	for _, e := range h.entries {
		a, err := e.read(from, h.data, buffer)
		if err != nil {
			return fmt.Errorf("read tensor %s: %w", e.name, err)
		}
		if err := use(a); err != nil {
			return err
		}
	}
	return nil
}

// stream is an io.ReaderAt for reads that follow each other without gaps. ReadArrays
// reads in this way: the header, then the data in its order.
type stream struct {
	r  io.Reader
	at int64
}

// ReadAt implements io.ReaderAt.
func (s *stream) ReadAt(p []byte, offset int64) (int, error) {
	if offset != s.at {
		return 0, fmt.Errorf("read byte %d of a stream that is at byte %d", offset, s.at)
	}
	n, err := io.ReadFull(s.r, p)
	s.at += int64(n)
	return n, err
}
