package half_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/half"
)

func TestQuantizeKeepsWhatWasQuantized(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, x := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), make([]float32, half.QuantBlock)
		scale := float32(math.Exp2(float64(rapid.IntRange(-30, 12).Draw(t, "scale"))))
		for i := range x {
			x[i] = float32(r.NormFloat64()) * scale
		}
		var block, again [half.QuantBlock]int8
		factor := half.Quantize(&block, x)
		for i := range x {
			if factor > 0x1p-14 { // else F16 has fewer digits for it
				require.InDelta(t, x[i], float32(block[i])*factor, float64(factor)*0.57)
			}
			x[i] = float32(block[i]) * factor
		}
		require.Equal(t, factor == 0, half.Quantize(&again, x) == 0)
		for i := range x {
			require.Equal(t, x[i], float32(again[i])*half.Quantize(&again, x))
		}
	})
}
