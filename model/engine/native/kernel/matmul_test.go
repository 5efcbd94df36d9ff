package kernel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// random returns n numbers in [-2, 2). They are the same on every processor, because none
// is rounded.
func random(n int, seed uint64) []float32 {
	r, x := rand.New(rand.NewPCG(seed, 1)), make([]float32, n)
	for i := range x {
		x[i] = float32(int32(r.Uint32())>>8) / (1 << 22)
	}
	return x
}

// equalBits requires equal bits, so it also distinguishes +0 from -0.
func equalBits(t require.TestingT, want, have []float32, message ...any) {
	require.Len(t, have, len(want), message...)
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(have[i]) {
			require.Equal(t, want[i], have[i], append([]any{"element", i}, message...)...)
		}
	}
}

func TestMatMulIsTheProduct(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		rapid.Check(t, func(t *rapid.T) {
			m, n := rapid.IntRange(1, 20).Draw(t, "m"), 16*rapid.IntRange(1, 5).Draw(t, "n/16")
			k, add := rapid.IntRange(0, 70).Draw(t, "k"), rapid.Bool().Draw(t, "add")
			a, b, c := random(m*k, 1), random(k*n, 2), random(m*n, 3)
			want := make([]float64, m*n)
			for i := range m {
				for j := range n {
					if add {
						want[i*n+j] = float64(c[i*n+j])
					}
					for p := range k {
						want[i*n+j] += float64(a[i*k+p]) * float64(b[p*n+j])
					}
				}
			}
			set.MatMul(c, n, a, k, 1, b, n, m, n, k, add)
			for i := range want {
				require.InDelta(t, want[i], c[i], 2e-5)
			}
		})
	}
}

// The engine's determinism rests on this guarantee.
func TestMatMulElementDependsOnItsRowAndColumnAlone(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		rapid.Check(t, func(t *rapid.T) {
			m, n := rapid.IntRange(1, 33).Draw(t, "m"), 16*rapid.IntRange(1, 6).Draw(t, "n/16")
			k, add := rapid.IntRange(1, 50).Draw(t, "k"), rapid.Bool().Draw(t, "add")
			a, b, old := random(m*k, 1), random(k*n, 2), random(m*n, 3)
			whole := append([]float32{}, old...)
			set.MatMul(whole, n, a, k, 1, b, n, m, n, k, add)

			// One row and sixteen columns at a time, A transposed, k in two halves.
			columns := make([]float32, k*m)
			kernel.PackColumns(columns, a, m, k)
			transposed := make([]float32, k*m)
			for i := range m {
				for p := range k {
					transposed[p*m+i] = a[i*k+p]
				}
			}
			parts, half := append([]float32{}, old...), k/2
			for i := range m {
				for j := 0; j < n; j += 16 {
					set.MatMul(parts[i*n+j:], n, transposed[i:], 1, m, b[j:], n, 1, 16, half, add)
					set.MatMul(parts[i*n+j:], n, transposed[half*m+i:], 1, m, b[half*n+j:], n, 1, 16, k-half, true)
				}
			}
			equalBits(t, whole, parts, set.Name())

			packed := make([]float32, k*n)
			kernel.PackColumns(packed, b, k, n)
			viaPanels := append([]float32{}, old...)
			set.MatMulPacked(viaPanels, n, a, k, packed, m, n, k, add)
			equalBits(t, whole, viaPanels, set.Name())
		})
	}
}

func TestPackRowsPacksTheTranspose(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, k := 16*rapid.IntRange(1, 6).Draw(t, "n/16"), rapid.IntRange(1, 50).Draw(t, "k")
		w := random(n*k, 1)
		transposed := make([]float32, n*k)
		for i := range n {
			for p := range k {
				transposed[p*n+i] = w[i*k+p]
			}
		}
		want, have := make([]float32, n*k), make([]float32, n*k)
		kernel.PackColumns(want, transposed, k, n)
		kernel.PackRows(have, w, n, k)
		require.Equal(t, want, have)
	})
}

func TestMatMulRefusesShortSlices(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		x := make([]float32, 64)
		require.Panics(t, func() { set.MatMul(x[:63], 16, x, 16, 1, x, 16, 4, 16, 4, false) })
		require.Panics(t, func() { set.MatMul(x, 16, x[:51], 16, 1, x, 16, 4, 16, 4, false) })
		require.Panics(t, func() { set.MatMul(x, 16, x, 16, 1, x[:63], 16, 4, 16, 4, false) })
		require.Panics(t, func() { set.MatMul(x, 16, x, 16, 1, x, 16, 4, 8, 4, false) })
	}
}

func BenchmarkMatMul(b *testing.B) {
	const m, n, k = 256, 256, 64
	x, w, y := random(m*k, 1), random(n*k, 2), make([]float32, m*n)
	packed := make([]float32, n*k)
	kernel.PackRows(packed, w, n, k)
	for _, set := range kernel.Sets() {
		b.Run(fmt.Sprintf("%s/%dx%dx%d", set.Name(), m, n, k), func(b *testing.B) {
			for b.Loop() {
				set.MatMulPacked(y, n, x, k, packed, m, n, k, false)
			}
			b.ReportMetric(2*m*n*k*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
