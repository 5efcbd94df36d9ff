package hf

import (
	"fmt"
	"io"

	"github.com/fulgurite/fulgurite/model"
)

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
