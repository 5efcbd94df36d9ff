package search_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/prompts/search"
)

// difficult returns worlds in which things go wrong.
func difficult() map[string]world {
	return map[string]world{
		"all goes well":        {seed: 1},
		"texts are refused":    {seed: 2, refused: 30},
		"scores are missing":   {seed: 3, missing: 6},
		"a task is broken":     {seed: 4, broken: []int{2}, missing: 2},
		"everything goes awry": {seed: 5, broken: []int{0, 7}, missing: 10, refused: 20, retried: 30},
	}
}

// each calls check for each kind of search in each world.
func each(t *testing.T, check func(t *testing.T, start func() search.Search, w world)) {
	for kind, start := range kinds(t) {
		for name, w := range difficult() {
			for prompts := 1; prompts <= 3; prompts++ {
				t.Run(fmt.Sprintf("%s, %s, %d prompts", kind, name, prompts), func(t *testing.T) {
					t.Parallel()
					check(t, func() search.Search { return start(settings(prompts)) }, w)
				})
			}
		}
	}
}

func TestTheSameSeedSearchesTheSame(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, start func() search.Search, w world) {
		first := drive(t, start(), w, driving{})
		require.Empty(t, cmp.Diff(first, drive(t, start(), w, driving{})))
		other := drive(t, start(), w, driving{draws: search.Seed(8)})
		require.NotEqual(t, first.Requests, other.Requests, "the seed decides nothing")
	})
}

func TestADecodedSearchGoesOnAsTheEncodedOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, start func() search.Search, w world) {
		require.Empty(t, cmp.Diff(drive(t, start(), w, driving{}), drive(t, start(), w, driving{encoded: true})))
	})
}

func TestTheOrderOfAnswersChangesNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, start func() search.Search, w world) {
		want := drive(t, start(), w, driving{})
		decisions := sorted(want.Decisions)
		for seed := range uint64(3) {
			got := drive(t, start(), w, driving{order: rand.New(rand.NewPCG(seed, 1))})
			require.Equal(t, decisions, sorted(got.Decisions))
			want.Decisions, got.Decisions = nil, nil
			require.Empty(t, cmp.Diff(want, got))
		}
	})
}

func TestRequestsHaveIDsOfTheirOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, start func() search.Search, w world) {
		seen := map[string]bool{}
		for _, r := range drive(t, start(), w, driving{}).Requests {
			require.False(t, seen[r.ID], r.ID)
			seen[r.ID] = true
		}
	})
}

// spent adds what requests cost.
func spent(requests []search.Request) search.Budget {
	var b search.Budget
	for _, r := range requests {
		switch n := len(r.Tasks) * r.Samples; {
		case r.Kind != search.Evaluate:
			b.Reflections++
		case r.Purpose == search.PurposeMinibatch:
			b.Minibatch += n
		default:
			b.Validation += n
		}
	}
	return b
}

func TestNoRequestGoesBeyondTheBudget(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := settings(rapid.IntRange(1, 3).Draw(t, "prompts"))
		s.Train, s.Validation = rapid.IntRange(1, 12).Draw(t, "train"), rapid.IntRange(5, 12).Draw(t, "validation")
		s.Samples, s.ValidationSamples = rapid.IntRange(1, 3).Draw(t, "samples"), rapid.IntRange(1, 2).Draw(t, "validation samples")
		s.Seed = rapid.Uint64().Draw(t, "seed")
		s.Budget = search.Budget{
			Minibatch: rapid.IntRange(1, 300).Draw(t, "minibatch"), Validation: rapid.IntRange(1, 300).Draw(t, "validation rollouts"),
			Reflections: rapid.IntRange(1, 40).Draw(t, "reflections"),
		}
		w := world{seed: rapid.IntRange(0, 99).Draw(t, "world"), missing: rapid.IntRange(0, 40).Draw(t, "missing"), refused: rapid.IntRange(0, 60).Draw(t, "refused")}
		var one search.Search
		var err error
		if rapid.Bool().Draw(t, "apo") {
			one, err = search.NewAPO(s, search.APOSettings{Beam: rapid.IntRange(1, 4).Draw(t, "beam"), Branch: rapid.IntRange(1, 3).Draw(t, "branch"), ValidationBatch: rapid.IntRange(1, 12).Draw(t, "batch")})
		} else {
			one, err = search.NewGEPA(s, search.GEPASettings{Minibatch: rapid.IntRange(1, 4).Draw(t, "size"), Merge: rapid.Bool().Draw(t, "merge")})
		}
		if err != nil {
			require.ErrorIs(t, err, search.ErrBudget)
			return
		}
		h := drive(t, one, w, driving{})
		require.LessOrEqual(t, h.Account.Spent.Minibatch, s.Budget.Minibatch)
		require.LessOrEqual(t, h.Account.Spent.Validation, s.Budget.Validation)
		require.LessOrEqual(t, h.Account.Spent.Reflections, s.Budget.Reflections)
		require.Equal(t, spent(unique(h.Requests)), h.Account.Spent)
	})
}

// unique returns each request once: a step shows those that are still open.
func unique(requests []search.Request) []search.Request {
	var out []search.Request
	for _, r := range requests {
		if !slices.ContainsFunc(out, func(o search.Request) bool { return o.ID == r.ID }) {
			out = append(out, r)
		}
	}
	return out
}

func TestRetriesCountAsSpent(t *testing.T) {
	t.Parallel()
	s := settings(1)
	g := newGEPA(t, s, search.GEPASettings{})
	a := world{}.answer(g.Next().Requests[0])
	a.Retries = 5
	_, err := g.Answer(a)
	require.NoError(t, err)
	require.Equal(t, s.Validation+5, g.Account().Spent.Validation)
}

func TestTheWinnerIsTheBestOnTheWholeValidationSplit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, start func() search.Search, w world) {
		h := drive(t, start(), w, driving{})
		require.NotEmpty(t, h.Done.Reason)
		require.Equal(t, w.broken, h.Done.Excluded[:min(len(w.broken), len(h.Done.Excluded))])
		total, n := 0.0, 0
		for task := range 8 {
			if !slices.Contains(h.Done.Excluded, task) {
				total, n = total+w.score(h.Done.Winner, search.SplitValidation, task), n+1
			}
		}
		require.InDelta(t, total/float64(n), *h.Done.Score, 1e-12)
		require.GreaterOrEqual(t, *h.Done.Score, *h.Done.SeedScore)
		best := *h.Done.SeedScore
		for _, d := range h.Decisions {
			if d.Best {
				require.GreaterOrEqual(t, *d.Score, best)
				best = *d.Score
			}
		}
		require.Equal(t, best, *h.Done.Score)
	})
}

func TestRefusalsAreCountedAndStopNothing(t *testing.T) {
	t.Parallel()
	for kind, start := range kinds(t) {
		h := drive(t, start(settings(2)), world{seed: 1, refused: 100}, driving{})
		require.Contains(t, []search.Reason{search.EndBudget, search.EndRounds}, h.Done.Reason, kind)
		total := 0
		for _, n := range h.Account.Refusals {
			total += n
		}
		require.Equal(t, h.Account.Spent.Reflections, total, kind)
		require.Equal(t, h.Done.SeedScore, h.Done.Score, kind)
	}
}

func TestASeedWithoutScoresEndsTheSearch(t *testing.T) {
	t.Parallel()
	for kind, start := range kinds(t) {
		h := drive(t, start(settings(1)), world{broken: []int{0, 1, 2, 3, 4, 5, 6, 7}}, driving{})
		require.Equal(t, search.EndUnmeasured, h.Done.Reason, kind)
		require.Nil(t, h.Done.Score, kind)
		require.Equal(t, 16, h.Account.Spent.Validation, "%s: each task is tried twice", kind)
	}
}

func TestASearchEndsWhenEverythingIsSolved(t *testing.T) {
	t.Parallel()
	for kind, start := range kinds(t) {
		s := settings(1)
		s.Perfect = new(float64) // every score is at least 0
		h := drive(t, start(s), world{seed: 1}, driving{})
		require.Equal(t, search.EndSolved, h.Done.Reason, kind)
		require.Zero(t, h.Account.Spent.Reflections, kind)
	}
}

func TestASearchEndsWithoutProgress(t *testing.T) {
	t.Parallel()
	for kind, start := range kinds(t) {
		s := settings(1)
		s.Patience = 2
		h := drive(t, start(s), world{seed: 1, refused: 100}, driving{})
		require.Equal(t, search.EndNoProgress, h.Done.Reason, kind)
	}
}

func TestAnswersThatDoNotFitAreNotTaken(t *testing.T) {
	t.Parallel()
	g := newGEPA(t, settings(1), search.GEPASettings{})
	before, err := search.Encode(g)
	require.NoError(t, err)
	good := world{}.answer(g.Next().Requests[0])
	bad := func(change func(*search.Answer)) search.Answer {
		a := good
		a.Results = slices.Clone(good.Results)
		change(&a)
		return a
	}
	nan := math.NaN()
	for want, a := range map[string]search.Answer{
		"does not wait for it":              bad(func(a *search.Answer) { a.Request = "other" }),
		"7 results for 8 tasks":             bad(func(a *search.Answer) { a.Results = a.Results[1:] }),
		"result 2 is of task 7":             bad(func(a *search.Answer) { a.Results[2].Task = 7 }),
		"the score of task 3 is NaN":        bad(func(a *search.Answer) { a.Results[3].Score = &nan }),
		"a text or a refusal":               bad(func(a *search.Answer) { a.Text = "text" }),
		"-1 retries":                        bad(func(a *search.Answer) { a.Retries = -1 }),
		`take answer to "seed": it has a t`: bad(func(a *search.Answer) { a.Refusal = search.RefusedEmpty }),
	} {
		_, err := g.Answer(a)
		require.ErrorContains(t, err, want)
	}
	after, err := search.Encode(g)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
	_, err = g.Answer(good)
	require.NoError(t, err)
	_, err = g.Answer(good)
	require.ErrorIs(t, err, search.ErrNotOpen)
}

func TestAnUnknownStateIsRefused(t *testing.T) {
	t.Parallel()
	for _, state := range []string{``, `{}`, `{"algorithm":"other"}`, `{"algorithm":"gepa","open":3}`} {
		_, err := search.Decode([]byte(state))
		require.ErrorContains(t, err, "decode state of a search", state)
	}
}

func TestTheValuesOfASeedNeverChange(t *testing.T) {
	t.Parallel()
	var got []int
	for number := range uint64(8) {
		got = append(got, search.Seed(7).Below(number, 100))
	}
	require.Equal(t, []int{28, 23, 63, 92, 56, 38, 18, 41}, got)
}

func TestDrawsAreEven(t *testing.T) {
	t.Parallel()
	counts := make([]int, 7)
	total := 0.0
	for number := range uint64(70_000) {
		counts[search.Seed(3).Below(number, 7)]++
		x := search.Seed(4).Fraction(number)
		require.True(t, x >= 0 && x < 1)
		total += x
	}
	for _, n := range counts {
		require.InDelta(t, 10_000, n, 400)
	}
	require.InDelta(t, 35_000, total, 400)
}
