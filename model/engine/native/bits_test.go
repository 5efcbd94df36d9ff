package native_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// bitsOf returns the digests, by arithmetic and architecture, of what the first release
// of the engine computed. A digest may change only together with the engine's version,
// because a continued run would otherwise get other weights.
func bitsOf() map[string]string {
	return map[string]string{
		"fused16 tiny": "7e485b42e290f2a0", "rounded tiny": "2ab88197a487c599",
		"fused16 llama": "607d650f45ee86e6", "rounded llama": "5ca2e69264b46079",
		"fused16 qwen2": "d3b6fe574fabe533", "rounded qwen2": "2fdab4c43d889116",
		"fused16 qwen3": "4e9deb1fdbe0cf34", "rounded qwen3": "d1b9ef13a71a20c3",
		"fused16 everything": "9de0964922033861", "rounded everything": "cd85104101776c8d",
	}
}

// hashNumbers adds numbers to a digest, bit by bit.
func hashNumbers(h hash.Hash, xs []float32) {
	var word [4]byte
	for _, x := range xs {
		binary.LittleEndian.PutUint32(word[:], math.Float32bits(x))
		h.Write(word[:])
	}
}

// The digests cover scores, three updates and a completion, with ragged, restricted and
// long rows.
func TestBitsAreThoseOfTheFirstRelease(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("logarithms have other bits here")
	}
	for name, a := range architectures() {
		a.MaxPositions = 700
		for _, set := range kernels() {
			t.Run(name+"/"+set.Name(), func(t *testing.T) {
				t.Parallel()
				e := engine(set.Name(), 2)
				batch := append(rows(a, 25, 60, 2), masked(a, rows(a, 12, 40, 3), 4)...)
				batch = append(batch, longRow(a, 300), longRow(a, 650))
				tr, h := trainer(t, e, a, weights(a, 1)), sha256.New()
				logprobs, entropies := score(t, tr, batch)
				for i := range batch {
					hashNumbers(h, logprobs[i])
					hashNumbers(h, entropies[i])
				}
				for range 3 {
					_, err := tr.Update(t.Context(), batch, likelihood(3000), adamW())
					require.NoError(t, err)
				}
				c := tr.Checkpoint()
				for _, w := range []model.Weights{c.Weights, c.Mean, c.Variance} {
					for _, tensor := range w {
						hashNumbers(h, tensor.Data)
					}
				}
				d := decoder(t, e, a, c.Weights)
				for _, r := range requests(a, 10, 3) {
					completion, err := d.Decode(t.Context(), r)
					require.NoError(t, err)
					hashNumbers(h, completion.Logprobs)
				}
				require.Equal(t, bitsOf()[set.Arithmetic()+" "+name], hex.EncodeToString(h.Sum(nil))[:16])
			})
		}
	}
}
