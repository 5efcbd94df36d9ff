package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestOutputIsKeptWithTheSeal(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		for i, outcome := range []record.Outcome{record.OutcomeCompleted, record.AgentFailed, record.InfraFault} {
			a := begin(t, s, rollout(i, 0))
			got, err := s.Output(t.Context(), a)
			require.NoError(t, err)
			require.Zero(t, got, "it has not ended")
			want := record.Output{Stdout: "one\ntwo\n", Stderr: "é\n", LinesBefore: 1}
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: outcome, Output: want}))
			got, err = s.Output(t.Context(), a)
			require.NoError(t, err)
			require.Equal(t, want, got)
			sealed, err := s.Attempt(t.Context(), a)
			require.NoError(t, err)
			require.Zero(t, sealed.Output, "those who read many attempts have no use for it")
			// The output explains and decides nothing: an agent may, for example, print
			// the time.
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: outcome, Output: record.Output{Stdout: "other"}}))
			got, err = s.Output(t.Context(), a)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		_, err := s.Output(t.Context(), record.Address{RolloutID: rollout(9, 0), Attempt: 1})
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestAnyOutputCanBeSealed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{
			Address: a, Outcome: record.OutcomeCompleted, Output: record.Output{Stdout: "a\x00b\xffc\x1b[31m", Stderr: strings.Repeat("é", 40_000)},
		}))
		got, err := s.Output(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, "a\uFFFDb\uFFFDc\x1b[31m", got.Stdout)
		require.Equal(t, strings.Repeat("é", 4<<10), got.Stderr)
	})
}
