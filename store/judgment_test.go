package store_test

import (
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestTheFirstJudgmentStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, err := s.Judgment(t.Context(), "k")
		require.ErrorIs(t, err, record.ErrNotFound)
		want := record.Judgment{
			Key: "k", Model: "m", Scores: []float64{0, 1.0 / 3, 10}, Run: "demo", Policy: "main", Step: 3, At: noon,
		}
		got, created, err := s.PutJudgment(t.Context(), want)
		require.NoError(t, err)
		require.True(t, created)
		requireEqual(t, want, got)
		other := want
		other.Scores, other.Run = []float64{5, 5, 5}, "other"
		got, created, err = s.PutJudgment(t.Context(), other)
		require.NoError(t, err)
		require.False(t, created)
		requireEqual(t, want, got)
		got, err = s.Judgment(t.Context(), "k")
		require.NoError(t, err)
		requireEqual(t, want, got)

		_, _, err = s.PutJudgment(t.Context(), record.Judgment{Key: "n", Scores: []float64{math.NaN()}})
		require.ErrorContains(t, err, "put judgment n: encode scores")
	})
}

func TestAStepKnowsWhatItHadJudged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		judged := func(run, policy string, step int) int {
			n, err := s.Judged(t.Context(), run, policy, step)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, judged("demo", "main", 1), "none is no error")
		for i, j := range []record.Judgment{
			{Run: "demo", Policy: "main", Step: 1},
			{Run: "demo", Policy: "main", Step: 1},
			{Run: "demo", Policy: "main", Step: 2},
			{Run: "demo", Policy: "other", Step: 1},
			{Run: "again", Policy: "main", Step: 1},
		} {
			j.Key = string(rune('a' + i))
			for range 2 {
				_, _, err := s.PutJudgment(t.Context(), j)
				require.NoError(t, err)
			}
		}
		require.Equal(t, []int{2, 1}, []int{judged("demo", "main", 1), judged("demo", "other", 1)})
	})
}

func TestNonsenseIsKeptOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		nonsense := func(step, try int, about string) record.Nonsense {
			return record.Nonsense{Run: "demo", Policy: "main", Step: step, Judgment: about, Try: try, Answer: "no", Reason: "no array", At: noon}
		}
		want := []record.Nonsense{nonsense(1, 1, "a"), nonsense(1, 2, "a"), nonsense(1, 10, "a"), nonsense(1, 1, "b")}
		for _, i := range []int{3, 1, 0, 2, 1} {
			require.NoError(t, s.PutNonsense(t.Context(), want[i]))
		}
		require.NoError(t, s.PutNonsense(t.Context(), nonsense(2, 1, "a")))
		other := want[0]
		other.Answer = "never"
		require.NoError(t, s.PutNonsense(t.Context(), other))
		got, err := s.Nonsense(t.Context(), "demo", "main", 1)
		require.NoError(t, err)
		requireEqual(t, want, got)
		got, err = s.Nonsense(t.Context(), "demo", "other", 1)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

// Two workers may ask a judge about the same; both go on with what one of them got.
func TestOfJudgmentsMadeAtOnceOneStands(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		stores := []*store.Store{open(t, url), open(t, url)}
		var made atomic.Int64
		seen := make([]record.Judgment, 16)
		var g errgroup.Group
		for i := range seen {
			g.Go(func() error {
				j, created, err := stores[i%2].PutJudgment(t.Context(), record.Judgment{Key: "k", Scores: []float64{float64(i)}})
				if created {
					made.Add(1)
				}
				seen[i] = j
				return err
			})
		}
		require.NoError(t, g.Wait())
		require.EqualValues(t, 1, made.Load())
		for _, j := range seen {
			requireEqual(t, seen[0], j)
		}
	})
}
