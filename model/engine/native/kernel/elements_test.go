package kernel_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// everything runs each element-wise kernel of set on inputs drawn from seed and
// returns all that they wrote, kernel by kernel.
func everything(set *kernel.Set, seed uint64, n, rows int) map[string][]float32 {
	width := kernel.Pad(n)
	out := map[string][]float32{}
	logits := func() []float32 {
		x := random(width, seed)
		for i := range x {
			x[i] *= 20
		}
		return x
	}
	x := logits()
	set.Softmax(x, n, 0.7)
	out["softmax"] = x
	x = logits()
	most, sum, weighted := set.LogSumExp(x, n, 1.3)
	out["logSumExp"] = []float32{most, sum, weighted}
	set.LogitsGradient(x, n, 1.3, most, 2.5, 0.9, -0.4, 0.2)
	out["logitsGradient"] = x

	p, dp := logits(), random(width, seed+1)
	set.Softmax(p, n, 1)
	set.SoftmaxBackward(p, dp, width, 0.25)
	out["softmaxBackward"] = dp

	in, w := random(rows*width, seed+2), random(width, seed+3)
	h, inverse := make([]float32, rows*width), make([]float32, rows)
	set.Norm(h, in, w, inverse, rows, n, 1e-6)
	out["norm"] = append(append([]float32{}, h...), inverse...)
	dx, dw := random(rows*width, seed+4), random(width, seed+5)
	set.NormBackward(h, in, w, inverse, dx, dw, rows, n)
	out["normBackward"] = append(dx, dw...)

	gu, act := random(2*rows*width, seed+6), make([]float32, rows*width)
	set.SwiGLU(gu, act, rows, width)
	out["swiGLU"] = append([]float32{}, act...)
	set.SwiGLUBackward(gu, random(rows*width, seed+7), rows, width)
	out["swiGLUBackward"] = gu

	turned := random(rows*width, seed+8)
	set.Rotate(turned, random(width/2, seed+9), random(width/2, seed+10), rows)
	out["rotate"] = turned
	total := random(width, seed+11)
	set.Add(total, random(width, seed+12))
	out["add"] = total
	out["sumSquares"] = []float32{float32(set.SumSquares(in))}

	weight, mean, variance := random(width, seed+13), random(width, seed+14), random(width, seed+15)
	for i := range variance {
		variance[i] *= variance[i]
	}
	set.AdamW(weight, random(width, seed+16), mean, variance, kernel.AdamW{
		Rate: 0.01, Scale: 0.5, Decay: 0.1, Epsilon: 1e-8, Beta1: 0.9, Rest1: 0.1, Correct1: 2, Beta2: 0.98, Rest2: 0.02, Correct2: 3,
	})
	out["adamW"] = append(append(weight, mean...), variance...)
	return out
}

func TestSetsOfEqualArithmeticGiveEqualBits(t *testing.T) {
	t.Parallel()
	sets := kernel.Sets()
	if len(sets) < 3 {
		t.Skip("this processor runs fewer than two vector sets")
	}
	require.Equal(t, sets[0].Arithmetic(), sets[1].Arithmetic())
	rapid.Check(t, func(t *rapid.T) {
		seed, n, rows := rapid.Uint64Range(0, 1<<40).Draw(t, "seed"), rapid.IntRange(1, 100).Draw(t, "n"), rapid.IntRange(1, 4).Draw(t, "rows")
		want, have := everything(sets[0], seed, n, rows), everything(sets[1], seed, n, rows)
		for name := range want {
			equalBits(t, want[name], have[name], name)
		}
		m, k := rapid.IntRange(1, 17).Draw(t, "m"), rapid.IntRange(1, 80).Draw(t, "k")
		a, b := random(m*k, seed), random(k*48, seed+1)
		c := [2][]float32{make([]float32, m*48), make([]float32, m*48)}
		for i := range c {
			sets[i].MatMul(c[i], 48, a, k, 1, b, 48, m, 48, k, false)
		}
		equalBits(t, c[0], c[1], "matMul")
	})
}

func TestVectorKernelsAgreeWithPortableOnes(t *testing.T) {
	t.Parallel()
	sets := kernel.Sets()
	plain := sets[len(sets)-1]
	require.Equal(t, "go", plain.Name())
	for _, set := range sets[:len(sets)-1] {
		require.NotEqual(t, plain.Arithmetic(), set.Arithmetic())
		rapid.Check(t, func(t *rapid.T) {
			seed, n, rows := rapid.Uint64Range(0, 1<<40).Draw(t, "seed"), rapid.IntRange(1, 100).Draw(t, "n"), rapid.IntRange(1, 4).Draw(t, "rows")
			want, have := everything(plain, seed, n, rows), everything(set, seed, n, rows)
			for name := range want {
				for i, x := range want[name] {
					require.InEpsilon(t, 1+math.Abs(float64(x)), 1+math.Abs(float64(have[name][i])), 2e-4, "%s %d: %v and %v", name, i, x, have[name][i])
				}
			}
		})
	}
}

func TestSoftmaxMatchesDoublePrecision(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		for n := 1; n <= 70; n++ {
			x := random(kernel.Pad(n), uint64(n))
			var sum, weighted float64
			most := x[0]
			for _, v := range x[:n] {
				most = max(most, v)
			}
			want := make([]float64, n)
			for i, v := range x[:n] {
				y := 3 * float64(v-most)
				want[i] = math.Exp(y)
				sum += want[i]
				weighted += y * want[i]
			}
			m, s, w := set.LogSumExp(x, n, 3)
			require.Equal(t, most, m)
			require.InEpsilon(t, sum, s, 1e-6)
			require.InDelta(t, weighted, w, 1e-5)
			set.Softmax(x, n, 3)
			for i, v := range x {
				if i >= n {
					require.Zero(t, v)
					continue
				}
				require.InDelta(t, want[i]/sum, v, 1e-6)
			}
		}
	}
}

func TestRotateBackUndoesRotate(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		cos, sin := make([]float32, 24), make([]float32, 24)
		for i := range cos {
			cos[i], sin[i] = float32(math.Cos(float64(i))), float32(math.Sin(float64(i)))
		}
		x := random(3*48, 1)
		want := append([]float32{}, x...)
		set.Rotate(x, cos, sin, 3)
		require.InDelta(t, want[1]*cos[1]-want[25]*sin[1], x[1], 1e-6)
		require.InDelta(t, want[25]*cos[1]+want[1]*sin[1], x[25], 1e-6)
		set.RotateBack(x, cos, sin, 3)
		require.InDeltaSlice(t, want, x, 1e-6)
	}
}

// The sums must show that a model has diverged; a clamp would hide it.
func TestNotANumberReachesTheSums(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			for i := range 20 {
				x := random(32, 1)
				x[i] = bad
				_, sum, _ := set.LogSumExp(x, 20, 1)
				require.True(t, math.IsNaN(float64(sum)), "%s: %v at %d gives the sum %v", set.Name(), bad, i, sum)
				x[i] = bad
				squares := set.SumSquares(x)
				require.True(t, math.IsNaN(squares) || math.IsInf(squares, 1))
			}
		}
	}
}

func TestSumOfSquaresOfLargeNumbersIsFinite(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		x := make([]float32, 16)
		x[3], x[12] = 3e30, 4e30
		require.InEpsilon(t, 5e30, math.Sqrt(set.SumSquares(x)), 1e-6)
	}
}

func TestNamedFindsSets(t *testing.T) {
	t.Parallel()
	for _, set := range kernel.Sets() {
		found, err := kernel.Named(set.Name())
		require.NoError(t, err)
		require.Equal(t, set.Name(), found.Name())
	}
	_, err := kernel.Named("sse")
	require.ErrorIs(t, err, kernel.ErrUnknown)
}
