package half_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/half"
)

// TestEveryHalfSurvivesFloat32 widens and narrows all numbers of 16 bits.
func TestEveryHalfSurvivesFloat32(t *testing.T) {
	t.Parallel()
	for h := range 1 << 16 {
		h := uint16(h)
		if x := half.FromF16(h); x != x {
			y := half.FromF16(half.ToF16(x))
			require.True(t, y != y, "%04x", h)
		} else {
			require.Equal(t, h, half.ToF16(x), "F16 %04x", h)
		}
		if x := half.FromBF16(h); x != x {
			y := half.FromBF16(half.ToBF16(x))
			require.True(t, y != y, "%04x", h)
		} else {
			require.Equal(t, h, half.ToBF16(x), "BF16 %04x", h)
		}
	}
}

// TestNarrowingTakesTheNearest compares each result with its two neighbours.
func TestNarrowingTakesTheNearest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		if x != x || math.IsInf(float64(x), 0) {
			return
		}
		nearest(t, x, half.ToBF16(x), half.FromBF16)
		if math.Abs(float64(x)) < 65520 {
			nearest(t, x, half.ToF16(x), half.FromF16)
		}
	})
	require.Equal(t, uint16(0x7bff), half.ToF16(65519.996))
	require.Equal(t, uint16(0xfc00), half.ToF16(-65520))
	require.Equal(t, uint16(0x7f80), half.ToBF16(math.MaxFloat32))
}

func nearest(t *rapid.T, x float32, h uint16, widen func(uint16) float32) {
	got := math.Abs(float64(widen(h)) - float64(x))
	for _, other := range []uint16{h - 1, h + 1} {
		y := float64(widen(other))
		if y != y || math.Signbit(y) != math.Signbit(float64(x)) || math.IsInf(float64(widen(h)), 0) || math.IsInf(y, 0) {
			continue
		}
		d := math.Abs(y - float64(x))
		if d < got || d == got && h&1 == 1 {
			t.Fatalf("%v became %04x (%v), nearer is %04x (%v)", x, h, widen(h), other, y)
		}
	}
}
