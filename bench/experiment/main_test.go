package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/experiment"
)

func named(t *testing.T, name string) scenario {
	t.Helper()
	i := slices.IndexFunc(scenarios(), func(s scenario) bool { return s.name == name })
	require.GreaterOrEqual(t, i, 0)
	return scenarios()[i]
}

// The full simulation has 10,000 histories of each kind of users; docs/benchmarks.md has its
// figures.
func TestTheTestKeepsItsLevelAndHasPower(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	o := options{histories: 150, conversations: 2000, every: 10, workers: 2, level: 0.05, effect: 0.1}
	usual := scenarios()[0]
	none, err := o.measure(usual, 0)
	require.NoError(t, err)
	require.LessOrEqual(t, none.within(o.conversations), o.allowed())
	require.Greater(t, none.once, 0.15, "an interval for one look is wrong at some look: the histories can show it")
	some, err := o.measure(usual, o.effect)
	require.NoError(t, err)
	require.GreaterOrEqual(t, some.within(o.conversations), 0.8)
	require.Zero(t, some.wrong)

	few, err := o.measure(named(t, "150 users, correlation 0.2"), 0)
	require.NoError(t, err)
	require.LessOrEqual(t, few.within(o.conversations), o.allowed())
	require.Greater(t, few.ignored, o.allowed(), "a test that ignores users is wrong more often: the histories can show it")
}

func TestHistoriesHaveTheStatedMeanCorrelationAndLateness(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios()[:10] {
		var n, sum, squares, pairs, products float64
		candidates, late := 0, 0
		for number := range uint64(40) {
			outcomes := s.history(number, 2000, 0)
			require.True(t, slices.IsSortedFunc(outcomes, func(a, b experiment.Outcome) int { return a.At.Compare(b.At) }))
			type user struct{ n, sum, squares float64 }
			users := map[string]user{}
			for _, o := range outcomes {
				v := o.Value
				n, sum, squares = n+1, sum+v, squares+v*v
				if o.Candidate {
					candidates++
				}
				u := users[o.Unit]
				users[o.Unit] = user{u.n + 1, u.sum + v, u.squares + v*v}
				if experiment.Assign("simulated", 7, o.Unit, s.share) != o.Candidate {
					t.Fatalf("%s: unit %s has the other version", s.name, o.Unit)
				}
			}
			for _, u := range users { // each user's pairs of conversations, in both orders
				pairs, products = pairs+u.n*(u.n-1), products+u.sum*u.sum-u.squares
			}
			if outcomes[len(outcomes)-1].At.Sub(outcomes[0].At).Seconds() > 1000 {
				late++
			}
		}
		require.InDelta(t, s.mean, sum/n, 0.02, s.name)
		require.InDelta(t, s.share, float64(candidates)/n, 0.03, s.name)
		require.Equal(t, 40, late, "feedback comes after the last conversation")
		mean := sum / n
		if pairs > 0 {
			require.InDelta(t, s.correlation, (products/pairs-mean*mean)/(squares/n-mean*mean), 0.05, s.name)
		}
	}
}

func TestAHistoryIsRepeatable(t *testing.T) {
	t.Parallel()
	s := scenarios()[0]
	require.Empty(t, cmp.Diff(s.history(3, 100, 0.1), s.history(3, 100, 0.1)))
	require.NotEmpty(t, cmp.Diff(s.history(3, 100, 0.1), s.history(4, 100, 0.1)))
}
