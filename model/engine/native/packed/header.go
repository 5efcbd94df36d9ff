package packed

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/fulgurite/fulgurite/model"
)

// format names the layout of a file: headerSize bytes, which are the header as JSON and
// zeros, and then the numbers.
const format = "fulgurite.packed/1"

// headerSize is the size of the largest page that the supported systems have.
const headerSize = 1 << 14

// Key holds everything that the numbers of a file depend on.
type Key struct {
	Base         string             `json:"base"` // digest
	Architecture model.Architecture `json:"architecture"`
	Precision    model.Precision    `json:"precision"`
	// Layout describes the order of the numbers, in the engine's words.
	Layout string `json:"layout"`
	// Numbers is how many numbers there are, of four bytes each.
	Numbers int `json:"numbers"`
}

// header is the header of a file.
type header struct {
	Format string `json:"format"`
	Key
	BigEndian bool   `json:"big_endian"`
	SHA256    string `json:"sha256"` // of the numbers, in hex
}

func newHeader(k Key, sum []byte) header {
	return header{format, k, binary.NativeEndian.Uint16([]byte{0, 1}) == 1, fmt.Sprintf("%x", sum)}
}

// with returns h with the digest sum.
func (h header) with(sum string) header {
	h.SHA256 = sum
	return h
}

// Name returns the name of k's file, which differs among files made of the same base.
func (k Key) Name() string {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(newHeader(k, nil)) // of numbers and strings
	return fmt.Sprintf("native-%016x", h.Sum64())
}

// size returns the size of the file, in bytes.
func (k Key) size() int64 { return headerSize + 4*int64(k.Numbers) }

// Size returns the size, in bytes, of a file of so many numbers.
func Size(numbers int64) int64 { return headerSize + 4*numbers }

func (h header) encode() ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode the header: %w", err)
	}
	if len(text) > headerSize {
		return nil, fmt.Errorf("the header takes %d bytes, there are %d", len(text), headerSize)
	}
	return append(text, make([]byte, headerSize-len(text))...), nil
}

// parseHeader returns the zero header if the text is no header.
func parseHeader(text []byte) (h header) {
	if json.Unmarshal(bytes.TrimRight(text, "\x00"), &h) != nil {
		return header{}
	}
	return h
}
