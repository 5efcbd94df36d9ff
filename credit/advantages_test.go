package credit_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
)

// goldenAdvantages is the file that golden/advantages.py wrote.
type goldenAdvantages struct {
	Batches map[string][][]credit.Trajectory
	Cases   []struct {
		Name, Batch string
		Plan        credit.Plan
		Want        credit.Advantages
	}
	Overlong []struct {
		credit.Overlong
		Length int
		Want   float64
	}
}

func readAdvantages(t *testing.T) goldenAdvantages {
	t.Helper()
	data, err := os.ReadFile("testdata/advantages.json")
	require.NoError(t, err)
	var g goldenAdvantages
	require.NoError(t, json.Unmarshal(data, &g))
	require.NotEmpty(t, g.Cases)
	require.NotEmpty(t, g.Overlong)
	return g
}

func TestAdvantagesMatchNumbersComputedElsewhere(t *testing.T) {
	t.Parallel()
	g := readAdvantages(t)
	for _, c := range g.Cases {
		t.Run(c.Name+"/"+c.Batch, func(t *testing.T) {
			t.Parallel()
			got, err := c.Plan.Advantages(g.Batches[c.Batch])
			require.NoError(t, err)
			require.Len(t, got.Trajectory, len(c.Want.Trajectory))
			require.Equal(t, c.Want.Token == nil, got.Token == nil)
			require.Equal(t, c.Want.Returns == nil, got.Returns == nil)
			require.Equal(t, c.Want.Baselines == nil, got.Baselines == nil)
			require.Len(t, got.Baselines, len(c.Want.Baselines))
			for key, want := range c.Want.Baselines {
				require.InDelta(t, want, got.Baselines[key], 1e-9, key)
			}
			for g := range c.Want.Trajectory {
				requireNear(t, c.Want.Trajectory[g], got.Trajectory[g])
				require.Len(t, got.Call[g], len(c.Want.Call[g]))
				for i := range c.Want.Call[g] {
					requireNear(t, c.Want.Call[g][i], got.Call[g][i])
					requireNearTokens(t, c.Want.Token, got.Token, g, i)
					requireNearTokens(t, c.Want.Returns, got.Returns, g, i)
				}
			}
		})
	}
}

func requireNearTokens(t *testing.T, want, got [][][][]float64, g, i int) {
	t.Helper()
	if want == nil {
		return
	}
	require.Len(t, got[g][i], len(want[g][i]))
	for k := range want[g][i] {
		requireNear(t, want[g][i][k], got[g][i][k])
	}
}

// requireNear requires agreement to 1e-9: relative for numbers larger than 1, else
// absolute.
func requireNear(t *testing.T, want, got []float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, want[i], got[i], 1e-9*math.Max(1, math.Abs(want[i])), "%d of %v, got %v", i, want, got)
	}
}

func TestOverlongMatchesNumbersComputedElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range readAdvantages(t).Overlong {
		require.InDelta(t, c.Want, c.Shape(c.Length), 1e-12, "%+v", c)
	}
}

func TestTheFormatPenaltyIsTakenOnce(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0, credit.FormatPenalty(0, 0.5), 0)
	require.InDelta(t, -0.5, credit.FormatPenalty(1, 0.5), 0)
	require.InDelta(t, -0.5, credit.FormatPenalty(7, 0.5), 0)
}

// The expected bits are those of the first release: runs that began with it continue with
// this one and must end in the same weights.
func TestAdvantagesOfTheFirstReleaseStayTheSameToTheBit(t *testing.T) {
	t.Parallel()
	rewards := [][]float64{{1, 0, 0.3, 0.7}, {0.1, 0.1, 0.1}, {-2, 5}, {0.9}}
	var groups [][]credit.Trajectory
	for _, g := range rewards {
		var samples []credit.Trajectory
		for _, r := range g {
			samples = append(samples, attempt(r, make([]credit.Call, 3)...))
		}
		groups = append(groups, samples)
	}
	for _, c := range []struct {
		plan credit.Plan
		want []uint64 // of the first trajectory's reward and calls, then of the last but one
	}{
		{
			credit.Plan{Normalization: grpo},
			[]uint64{0x3ff231be68cd9c62, 0x3ff231be68cd9c62, 0x3ff231be68cd9c62, 0x3ff231be68cd9c62, 0x3fe6a09e19cd19f2},
		},
		{
			credit.Plan{Normalization: credit.Normalization{Mean: credit.Group, LeaveOneOut: true}, Assignment: credit.Discounted, Discount: 0.9},
			[]uint64{0x3fe5555555555556, 0x3fe147ae147ae149, 0x3fe3333333333334, 0x3fe5555555555556, 0x401c000000000000},
		},
		{
			credit.Plan{Normalization: credit.Normalization{Mean: credit.Batch, Std: credit.Batch}, Assignment: credit.LastCall},
			[]uint64{0x3fcbc997580c31d4, 0x0000000000000000, 0x0000000000000000, 0x3fcbc997580c31d4, 0x40040497f988c8f4},
		},
		{
			credit.Plan{Normalization: credit.Normalization{Mean: credit.None, Std: credit.Batch}, Assignment: credit.Discounted, Discount: 0.7},
			[]uint64{0x3fe247fe840805d7, 0x3fd1ea64f207dcc3, 0x3fd997fdec0b3b60, 0x3fe247fe840805d7, 0x4006d9fe250a074c},
		},
	} {
		got, err := c.plan.Advantages(groups)
		require.NoError(t, err)
		var bits []uint64
		for _, x := range append([]float64{got.Trajectory[0][0]}, append(got.Call[0][0], got.Trajectory[2][1])...) {
			bits = append(bits, math.Float64bits(x))
		}
		require.Equal(t, c.want, bits, "%+v: %x", c.plan, bits)
	}
}
