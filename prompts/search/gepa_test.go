package search_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
)

// only returns the one request that is open.
func only(t *testing.T, s search.Search) search.Request {
	t.Helper()
	step := s.Next()
	require.Nil(t, step.Done)
	require.Len(t, step.Requests, 1)
	return step.Requests[0]
}

// give answers an evaluation with scores. A negative one is missing.
func give(t *testing.T, s search.Search, r search.Request, scores ...float64) []search.Decision {
	t.Helper()
	a := search.Answer{Request: r.ID}
	for i, task := range r.Tasks {
		result := search.Result{Task: task}
		if score := scores[i%len(scores)]; score >= 0 {
			result.Score = &score
		}
		a.Results = append(a.Results, result)
	}
	decisions, err := s.Answer(a)
	require.NoError(t, err)
	return decisions
}

func say(t *testing.T, s search.Search, r search.Request, text string) []search.Decision {
	t.Helper()
	decisions, err := s.Answer(search.Answer{Request: r.ID, Text: text})
	require.NoError(t, err)
	return decisions
}

func TestALuckyMinibatchAloneDoesNotWin(t *testing.T) {
	t.Parallel()
	s := settings(1)
	g := newGEPA(t, s, search.GEPASettings{})
	give(t, g, only(t, g), 0.5)
	give(t, g, only(t, g), 0)
	say(t, g, only(t, g), "lucky")
	give(t, g, only(t, g), 1)
	r := only(t, g)
	require.Equal(t, search.SplitValidation, r.Split)
	d := give(t, g, r, 0.25)
	require.Equal(t, search.Accepted, d[0].Verdict)
	require.False(t, d[0].Best)
	h := drive(t, g, world{refused: 100}, driving{})
	require.Equal(t, "text0", h.Done.Winner.Prompts[0].Text)
	require.InDelta(t, 0.5, *h.Done.Score, 0)
}

func TestOfEqualCandidatesTheEarlierWins(t *testing.T) {
	t.Parallel()
	g := newGEPA(t, settings(1), search.GEPASettings{})
	give(t, g, only(t, g), 0.5)
	give(t, g, only(t, g), 0)
	say(t, g, only(t, g), "as good")
	give(t, g, only(t, g), 1)
	d := give(t, g, only(t, g), 0.25, 0.75)
	require.InDelta(t, 0.5, *d[0].Score, 0)
	require.False(t, d[0].Best)
	h := drive(t, g, world{refused: 100}, driving{})
	require.Equal(t, "text0", h.Done.Winner.Prompts[0].Text)
}

func TestOnlyAStrictGainIsValidated(t *testing.T) {
	t.Parallel()
	for after, want := range map[float64]bool{0.4: false, 0.5: false, 0.6: true} {
		g := newGEPA(t, settings(1), search.GEPASettings{})
		give(t, g, only(t, g), 0.5)
		give(t, g, only(t, g), 0.5)
		say(t, g, only(t, g), "new")
		d := give(t, g, only(t, g), after)
		require.Equal(t, want, only(t, g).ID == "p0.validate", "%v", after)
		require.Equal(t, !want, len(d) == 1 && d[0].Verdict == search.Rejected, "%v", after)
	}
}

func TestRoundingMakesNoGain(t *testing.T) {
	t.Parallel()
	g := newGEPA(t, settings(1), search.GEPASettings{})
	give(t, g, only(t, g), 0.5)
	give(t, g, only(t, g), 0.3, 0.2, 0.1)
	say(t, g, only(t, g), "new")
	d := give(t, g, only(t, g), 0.1, 0.2, 0.3) // adds up to more in this order
	require.Equal(t, search.Rejected, d[0].Verdict)
}

func TestAMissingScoreIsNot0(t *testing.T) {
	t.Parallel()
	s := settings(1)
	t.Run("of the parent: the task leaves the minibatch", func(t *testing.T) {
		t.Parallel()
		g := newGEPA(t, s, search.GEPASettings{})
		give(t, g, only(t, g), 0.5)
		r := only(t, g)
		give(t, g, r, 0.5, -1, 0.25)
		reflect := only(t, g)
		require.Len(t, reflect.Shown, 2)
		say(t, g, reflect, "new")
		require.Equal(t, []int{r.Tasks[0], r.Tasks[2]}, only(t, g).Tasks)
		d := give(t, g, only(t, g), 0.5, 0.25)
		require.Equal(t, search.Rejected, d[0].Verdict)
	})
	t.Run("of the parent, all: nothing is reflected on", func(t *testing.T) {
		t.Parallel()
		g := newGEPA(t, s, search.GEPASettings{})
		give(t, g, only(t, g), 0.5)
		d := give(t, g, only(t, g), -1)
		require.Equal(t, search.Unmeasured, d[0].Verdict)
		require.Equal(t, "p1.parent", only(t, g).ID)
	})
	t.Run("of the candidate: it is not compared", func(t *testing.T) {
		t.Parallel()
		g := newGEPA(t, s, search.GEPASettings{})
		give(t, g, only(t, g), 0.5)
		give(t, g, only(t, g), 0.5, 0.5, 0)
		say(t, g, only(t, g), "new")
		d := give(t, g, only(t, g), 1, 1, -1)
		require.Equal(t, search.Unmeasured, d[0].Verdict)
	})
	t.Run("of a validation: it is asked for once more, and then the candidate is not archived", func(t *testing.T) {
		t.Parallel()
		for _, second := range []float64{1, -1} {
			g := newGEPA(t, s, search.GEPASettings{})
			give(t, g, only(t, g), 0.5)
			give(t, g, only(t, g), 0.5)
			say(t, g, only(t, g), "new")
			give(t, g, only(t, g), 1)
			r := only(t, g)
			require.Empty(t, give(t, g, r, 1, 1, -1, 1, 1, 1, 1, 1))
			again := only(t, g)
			require.Equal(t, []int{2}, again.Tasks)
			require.NotEqual(t, r.ID, again.ID)
			d := give(t, g, again, second)
			want := search.Accepted
			if second < 0 {
				want = search.Unmeasured
			}
			require.Equal(t, want, d[0].Verdict)
			require.Equal(t, second > 0, len(g.Archive) == 2)
		}
	})
	t.Run("of the seed's validation: the task leaves the split", func(t *testing.T) {
		t.Parallel()
		g := newGEPA(t, s, search.GEPASettings{})
		give(t, g, only(t, g), 0.5, 0.5, 0.5, -1)
		d := give(t, g, only(t, g), -1)
		require.InDelta(t, 0.5, *d[0].Score, 0)
		give(t, g, only(t, g), 0.5)
		say(t, g, only(t, g), "new")
		give(t, g, only(t, g), 1)
		require.Equal(t, []int{0, 1, 2, 4, 5, 6}, only(t, g).Tasks)
	})
}

func TestAPerfectMinibatchIsSkipped(t *testing.T) {
	t.Parallel()
	g := newGEPA(t, settings(1), search.GEPASettings{})
	give(t, g, only(t, g), 0.5)
	d := give(t, g, only(t, g), 1)
	require.Equal(t, search.Perfect, d[0].Verdict)
	d = give(t, g, only(t, g), 1, -1, 1)
	require.Equal(t, search.Perfect, d[0].Verdict, "a missing score is not imperfect")
	never := false
	g = newGEPA(t, settings(1), search.GEPASettings{SkipPerfect: &never})
	give(t, g, only(t, g), 0.5)
	give(t, g, only(t, g), 1)
	require.Equal(t, search.Reflect, only(t, g).Kind)
}

func TestPromptsTakeTurns(t *testing.T) {
	t.Parallel()
	g := newGEPA(t, settings(3), search.GEPASettings{})
	give(t, g, only(t, g), 0.5)
	for i := range 6 {
		give(t, g, only(t, g), 0.5)
		r := only(t, g)
		require.Equal(t, fmt.Sprintf("prompt%d", i%3), r.Prompt)
		say(t, g, r, fmt.Sprint("new", i))
		give(t, g, only(t, g), 0)
	}
}

func TestATextThatIsUnchangedCostsNoRollout(t *testing.T) {
	t.Parallel()
	g := newGEPA(t, settings(1), search.GEPASettings{})
	give(t, g, only(t, g), 0.5)
	give(t, g, only(t, g), 0.5)
	d := say(t, g, only(t, g), "text0")
	require.Equal(t, search.RefusedUnchanged, d[0].Refusal)
	require.Equal(t, 1, g.Account().Refusals[search.RefusedUnchanged])
	require.Equal(t, 3, g.Account().Spent.Minibatch-len(only(t, g).Tasks))
}

func TestEachEpochHasEveryTask(t *testing.T) {
	t.Parallel()
	s := settings(1)
	s.Train = 8 // with minibatches of 3, one task of each epoch is repeated
	h := drive(t, newGEPA(t, s, search.GEPASettings{}), world{seed: 1, refused: 100}, driving{})
	var seen []int
	for _, r := range h.Requests {
		if r.Split != search.SplitTrain {
			continue
		}
		if seen = append(seen, r.Tasks...); len(seen) == 9 {
			slices.Sort(seen)
			require.Len(t, slices.Compact(seen), 8)
			seen = nil
		}
	}
}

func TestMergesCombineLineagesAndAreBounded(t *testing.T) {
	t.Parallel()
	merged := 0
	for seed := range 8 {
		s := settings(3)
		s.Budget = search.Budget{Minibatch: 600, Validation: 600, Reflections: 100}
		h := drive(t, newGEPA(t, s, search.GEPASettings{Merge: true, Merges: 2}), world{seed: seed}, driving{stateless: true})
		accepted, due := 0, 0
		for _, d := range h.Decisions {
			if !d.Merge {
				if d.Verdict == search.Accepted && accepted < 2 {
					due++
				}
				continue
			}
			require.Len(t, d.Parents, 2)
			require.Len(t, d.Before, 2)
			require.Len(t, d.After, 5)
			if d.Verdict == search.Accepted {
				accepted++
			}
		}
		require.LessOrEqual(t, accepted, due)
		merged += accepted
	}
	require.Positive(t, merged)
}
