package conversation

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/fulgurite/fulgurite/trace"
)

// SeedOf returns the seed of a call. It does not depend on the run's name or the
// attempt's number, so equal runs and repeated attempts sample the same.
func SeedOf(runSeed uint64, r trace.RolloutID, key string, occurrence int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite call\n%d\n%s\n%d\n%d\n%d\n%s\n%d\n",
		runSeed, r.Kind, r.Step, r.Task, r.Sample, key, occurrence))
	return binary.BigEndian.Uint64(sum[:])
}

// Stem returns the part that the ids of a call share, 24 hex digits.
func Stem(seed uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite id\n%d\n", seed))
	return hex.EncodeToString(sum[:12])
}

// toolCallIDs returns a function that returns the id of a reply's k-th tool call.
func toolCallIDs(stem string) func(k int) string {
	return func(k int) string { return fmt.Sprintf("call_%s_%d", stem, k) }
}

// RandomNumber returns a seed for calls that are not recorded.
func RandomNumber() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}
