package experiment_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/experiment"
)

func TestAssignmentsAreThoseOfAnotherProgram(t *testing.T) {
	t.Parallel()
	places := readGolden(t).Places
	require.NotEmpty(t, places)
	for _, p := range places {
		require.False(t, experiment.Assign(p.run, p.candidate, p.unit, p.place), "%+v", p)
		require.True(t, experiment.Assign(p.run, p.candidate, p.unit, math.Nextafter(p.place, 1)), "%+v", p)
	}
}

func TestALargerShareOnlyAddsUnits(t *testing.T) {
	t.Parallel()
	for i := range 200 {
		unit := fmt.Sprint("user ", i)
		before := false
		for share := 0.0; share <= 1; share += 1.0 / 64 {
			now := experiment.Assign("demo", 7, unit, share)
			require.False(t, before && !now, "%s loses the candidate at share %g", unit, share)
			before = now
		}
		require.False(t, experiment.Assign("demo", 7, unit, 0))
		require.True(t, experiment.Assign("demo", 7, unit, 1))
		require.False(t, experiment.Assign("demo", 7, unit, math.NaN()))
	}
}

// Of 20,000 units, a count with probability p has a standard deviation of at most 71.
func TestCandidatesAndRunsAreAssignedIndependently(t *testing.T) {
	t.Parallel()
	const units, share = 20_000, 0.3
	var one, next, otherRun, both, bothRuns int
	for i := range units {
		unit := fmt.Sprint(i)
		a, b, c := experiment.Assign("demo", 7, unit, share), experiment.Assign("demo", 8, unit, share), experiment.Assign("other", 7, unit, share)
		for n, ok := range map[*int]bool{&one: a, &next: b, &otherRun: c, &both: a && b, &bothRuns: a && c} {
			if ok {
				*n++
			}
		}
	}
	deviations := func(count int, p float64) float64 {
		return math.Abs(float64(count)-units*p) / math.Sqrt(units*p*(1-p))
	}
	for _, n := range []int{one, next, otherRun} {
		require.Less(t, deviations(n, share), 4.0, n)
	}
	for _, n := range []int{both, bothRuns} {
		require.Less(t, deviations(n, share*share), 4.0, n)
	}
}
