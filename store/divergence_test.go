package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestADivergenceStandsUntilAllThatWasRecordedIsReplayed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		one := begin(t, s, rollout(7, 1))
		first, second := call(one, 0, []int32{1}, []int32{2}), call(one, 1, []int32{3}, []int32{4})
		appendCalls(t, s, first, second)
		two := begin(t, s, rollout(7, 1))
		other := call(two, 0, []int32{5}, []int32{6})
		other.Key = "key-other"
		other.Divergence = &record.Divergence{Address: two, Earlier: 1, EarlierSeq: 1, Difference: "messages[0].content was \"a\", is \"\u00e9\""}
		appendCalls(t, s, other)

		calls, err := s.Exchanges(t.Context(), two)
		require.NoError(t, err)
		requireEqual(t, []record.Exchange{other}, calls)
		remaining := func() []record.Divergence {
			found, err := s.Divergences(t.Context(), "demo")
			require.NoError(t, err)
			return found
		}
		requireEqual(t, []record.Divergence{*other.Divergence}, remaining())
		late := replayed(first, two)
		late.Seq = 1
		appendCalls(t, s, late)
		require.Len(t, remaining(), 1, "one of two")
		late = replayed(second, two)
		late.Seq = 2
		appendCalls(t, s, late)
		require.Empty(t, remaining())
		none, err := s.Divergences(t.Context(), "another")
		require.NoError(t, err)
		require.Empty(t, none)
	})
}
