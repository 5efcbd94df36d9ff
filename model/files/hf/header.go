package hf

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

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
