package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
)

func TestAWorldFollowsFromItsSeed(t *testing.T) {
	t.Parallel()
	w := newWorld(1)
	require.Equal(t, w, newWorld(1))
	require.NotEqual(t, w.lines, newWorld(2).lines)
	require.Len(t, w.items[search.SplitTrain], trainItems)
	require.Len(t, w.items[search.SplitValidation], validationItems)
	require.Len(t, w.items[splitGate], gateItems)
	// If these change, the tables of docs/benchmarks.md are of another world.
	require.InDelta(t, 0.273, w.gate(w.prompt), 0.0005)
	require.InDelta(t, 0.664, w.gate(w.best()), 0.0005)
}

func TestLinesHelpOrHurtAndLengthHurts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		w := newWorld(seed)
		require.Len(t, strings.Split(w.prompt, "\n"), 4)
		for _, one := range w.pool().Lines {
			switch {
			case slices.Contains(useful(), one.Text):
				require.Greater(t, one.Quality, 0.003, one.Text)
			case slices.Contains(harmful(), one.Text):
				require.Less(t, one.Quality, -0.003, one.Text)
			default:
				require.Less(t, one.Quality, 0.0, one.Text)
				require.Greater(t, one.Quality, -0.01, one.Text)
			}
		}
		require.InDelta(t, w.gate(w.prompt+"\n"+useful()[0]), w.gate(w.prompt+"\n"+useful()[0]+"\n"+useful()[0]), 0.01, "a line works once")
	}
}

func TestTheModelIsRightAsOftenAsItsChance(t *testing.T) {
	t.Parallel()
	w := newWorld(1)
	const times = 2000
	for index := range 3 {
		right, failed := 0.0, 0
		for n := range times {
			one := w.attempt(w.prompt, search.SplitTrain, index, n, 0.1)
			require.Equal(t, one, w.attempt(w.prompt, search.SplitTrain, index, n, 0.1))
			right += one.Reward
			if one.Failed {
				failed++
				continue
			}
			require.Equal(t, one.Reward == 1, one.Answer == w.items[search.SplitTrain][index].label)
		}
		require.InDelta(t, times/10, failed, 60)
		require.InDelta(t, w.chance(w.prompt, w.items[search.SplitTrain][index]), right/float64(times-failed), 0.05)
	}
	require.NotEqual(t, newRollouts(w, 0).occurrences(9), newRollouts(newWorld(2), 0).occurrences(9))
}

// occurrences are the rewards of the first n attempts at an item.
func (r *rollouts) occurrences(n int) []float64 {
	var out []float64
	for range n {
		out = append(out, r.attempt(opening, search.SplitValidation, 0).Reward)
	}
	return out
}

func TestNoCritiqueHoldsAnotherOrALine(t *testing.T) {
	t.Parallel()
	texts := slices.Concat(critiques(), useful(), harmful(), neutral(), []string{opening})
	for i, one := range texts {
		for k, another := range texts {
			require.False(t, i != k && strings.Contains(another, one), "%q is in %q", one, another)
		}
	}
}
