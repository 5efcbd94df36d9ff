package torch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// These bounds are above what any frame of the program needs.
const (
	maxHeader = 1 << 20 // bytes of a header
	maxArray  = 1 << 30 // bytes of an array
)

// errFrame is wrapped when bytes are not a frame: the peer is then another program, or
// broken.
var errFrame = errors.New("bad frame")

// array is a dense array of one type: "f4", "i4" or "u1", as in NumPy, little-endian.
type array struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	data  []byte
}

// number is an element of an array.
type number interface{ float32 | int32 | byte }

func newArray[N number](name string, data []N, shape ...int) array {
	a := array{Name: name, Shape: shape}
	switch data := any(data).(type) {
	case []float32:
		a.Type = "f4"
		a.data, _ = binary.Append(nil, binary.LittleEndian, data) // a slice of numbers has a size
	case []int32:
		a.Type = "i4"
		a.data, _ = binary.Append(nil, binary.LittleEndian, data)
	case []byte:
		a.Type, a.data = "u1", data
	}
	return a
}

// floats returns the numbers of an array, which must have n of them.
func (a array) floats(n int) ([]float32, error) {
	if a.Type != "f4" || len(a.data) != 4*n {
		return nil, fmt.Errorf("%w: array %s is of type %s with %d bytes, want %d of type f4", errFrame, a.Name, a.Type, len(a.data), 4*n)
	}
	out := make([]float32, n)
	_, err := binary.Decode(a.data, binary.LittleEndian, out)
	return out, err
}

// integers returns the numbers of an array, which must have n of them.
func (a array) integers(n int) ([]int32, error) {
	if a.Type != "i4" || len(a.data) != 4*n {
		return nil, fmt.Errorf("%w: array %s is of type %s with %d bytes, want %d of type i4", errFrame, a.Name, a.Type, len(a.data), 4*n)
	}
	out := make([]int32, n)
	_, err := binary.Decode(a.data, binary.LittleEndian, out)
	return out, err
}

// request is the header of a frame to the program.
type request struct {
	Verb       string  `json:"verb"`
	Generation int     `json:"generation"`
	Sequence   int     `json:"sequence"`
	Handle     int     `json:"handle,omitempty"`
	Body       any     `json:"body,omitempty"`
	Arrays     []array `json:"arrays,omitempty"`
}

// reply is the header of a frame from the program.
type reply struct {
	Generation int             `json:"generation"`
	Sequence   int             `json:"sequence"`
	Progress   bool            `json:"progress"`
	Result     json.RawMessage `json:"result"`
	Error      string          `json:"error"`
	Kind       string          `json:"kind"` // of the error: "setup", "refused", "memory" or "fault"
	Arrays     []array         `json:"arrays"`
}

// writeFrame writes r and its arrays.
func writeFrame(w io.Writer, r request) error {
	header, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode request %s: %w", r.Verb, err)
	}
	var frame bytes.Buffer
	frame.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(header))))
	frame.Write(header)
	for _, a := range r.Arrays {
		frame.Write(a.data)
	}
	_, err = w.Write(frame.Bytes())
	return err
}

// readFrame reads a reply and its arrays.
func readFrame(r io.Reader) (reply, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return reply{}, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxHeader {
		return reply{}, fmt.Errorf("%w: a header of %d bytes", errFrame, n)
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(r, header); err != nil {
		return reply{}, err
	}
	var got reply
	if err := json.Unmarshal(header, &got); err != nil {
		return reply{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	for i := range got.Arrays {
		a := &got.Arrays[i]
		size, err := a.size()
		if err != nil {
			return reply{}, err
		}
		a.data = make([]byte, size)
		if _, err := io.ReadFull(r, a.data); err != nil {
			return reply{}, err
		}
	}
	return got, nil
}

// size returns the number of bytes of an array whose header was read.
func (a array) size() (int, error) {
	n, ok := map[string]int{"f4": 4, "i4": 4, "u1": 1}[a.Type]
	for _, d := range a.Shape {
		if d < 0 || d > maxArray {
			ok = false
			break
		}
		if n *= d; n > maxArray {
			ok = false
			break
		}
	}
	if !ok {
		return 0, fmt.Errorf("%w: array %s of type %q and shape %v", errFrame, a.Name, a.Type, a.Shape)
	}
	return n, nil
}
