package packed_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/packed"
)

// killedVariable turns this test binary into a process that is killed while it makes the
// file that the variable names.
const killedVariable = "PACKED_TEST_KILLED"

func TestMain(m *testing.M) {
	path := os.Getenv(killedVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	_, err := packed.Files{}.Open(path, key(numbers), func(to []float32) error {
		copy(to, drawn(len(to))[:len(to)/2])
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
	fmt.Fprintln(os.Stderr, "it was not killed:", err)
	os.Exit(1)
}

// numbers is how many numbers most files here have: more than one chunk, but not a
// multiple of a page.
const numbers = 1<<18 + 100

func key(n int) packed.Key {
	return packed.Key{
		Base: "sha256:b", Precision: model.F32, Layout: "test", Numbers: n,
		Architecture: model.Architecture{VocabSize: 40, HiddenSize: 12, RopeTheta: 1e-6},
	}
}

// drawn returns the numbers of a file.
func drawn(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i*7919%1013) / 3
	}
	return out
}

// counted returns a function that sets numbers to drawn and counts its calls.
func counted(times *int) func([]float32) error {
	return func(to []float32) error {
		*times++
		copy(to, drawn(len(to)))
		return nil
	}
}
