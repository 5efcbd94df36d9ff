package kernel_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// The sets of amd64 and of arm64 can't run on one processor, so each is compared with the
// same digests.
func TestFusedSetsGiveTheKeptBits(t *testing.T) {
	t.Parallel()
	const path = "testdata/fused16.json"
	want := map[string]string{}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	for _, set := range kernel.Sets() {
		if set.Arithmetic() != "fused16" {
			continue
		}
		have := digests(set)
		if golden.Updating() {
			text, err := json.MarshalIndent(have, "", "  ")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o600))
			want = have
		}
		require.Equal(t, want, have, "%s: go test ./model/engine/native/kernel -run Kept -update writes the digests anew", set.Name())
	}
}

// digests returns SHA-256 sums of what each kernel writes for inputs of many sizes.
func digests(set *kernel.Set) map[string]string {
	sums := map[string]hash.Hash{}
	write := func(name string, numbers []float32) {
		if sums[name] == nil {
			sums[name] = sha256.New()
		}
		for _, x := range numbers {
			var bits [4]byte
			binary.LittleEndian.PutUint32(bits[:], math.Float32bits(x))
			sums[name].Write(bits[:])
		}
	}
	for i := range 48 {
		seed, n, rows := uint64(i), 1+i*i%131, 1+i%4
		for name, numbers := range everything(set, seed, n, rows) {
			write(name, numbers)
		}
		m, columns, k := 1+i%19, 16*(1+i%5), 1+i*7%90
		a, b, c := random(m*k, seed), random(k*columns, seed+1), random(m*columns, seed+2)
		set.MatMul(c, columns, a, k, 1, b, columns, m, columns, k, i%2 == 0)
		write("matMul", c)
		for name, numbers := range narrowProducts(set, seed, m, columns, k) {
			write(name, numbers)
		}
	}
	texts := map[string]string{}
	for name, sum := range sums {
		texts[name] = hex.EncodeToString(sum.Sum(nil))
	}
	return texts
}
