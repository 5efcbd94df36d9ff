package experiment

import (
	"crypto/sha256"
	"encoding/binary"
)

// Assign reports whether a unit gets the candidate of a run: the hashed user if it is known,
// otherwise the name of the conversation. The answer is always the same for the same unit
// and candidate. It is independent between units and between candidates, so users who got
// one candidate are not more likely to get the next one. A larger share only adds units. No
// unit gets the candidate at share 0, and all do at share 1.
func Assign(run string, candidate int, unit string, share float64) bool {
	h := sha256.New()
	number := func(n uint64) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	h.Write([]byte("experiment"))
	number(uint64(len(run))) // so that no part of one name counts as part of the other
	h.Write([]byte(run))
	number(uint64(candidate))
	h.Write([]byte(unit))
	const bits = 53 // a float64 represents all integers of so many bits
	place := binary.BigEndian.Uint64(h.Sum(nil)) >> (64 - bits)
	return float64(place)/(1<<bits) < share
}
