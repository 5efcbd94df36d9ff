package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestASealMarksTheCallsThatTheAgentReadInPart(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		names := []string{"A", "A/1", "AB", "", "B"}
		for i, name := range names {
			c := call(a, i, []int32{int32(i)}, []int32{2})
			c.RequestName = name
			c.PartlyRead = name == "B" // as a gateway without a forwarder knows it
			appendCalls(t, s, c)
		}
		seal := record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: number(1), PartlyRead: []string{"A", "gone"}}
		require.NoError(t, s.SealAttempt(t.Context(), seal))
		require.NoError(t, s.SealAttempt(t.Context(), seal))
		got, err := s.Calls(t.Context(), a)
		require.NoError(t, err)
		var marked []string
		for _, c := range got {
			if c.PartlyRead {
				marked = append(marked, c.RequestName)
			}
		}
		require.Equal(t, []string{"A", "A/1", "B"}, marked)
	})
}
