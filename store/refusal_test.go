package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestRefusalsAreCountedByCode(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		add := func(code, message string, at time.Time) {
			require.NoError(t, s.AddRefusal(t.Context(), record.Refusal{Address: a, Code: code, Message: message, Last: at}))
		}
		add("call_limit", "all of its 8 calls", noon)
		add("invalid_json", "no JSON\x00", noon.Add(time.Second))
		add("call_limit", "all of its 8 calls, again", noon.Add(2*time.Second))
		add("call_limit", "all of its 8 calls, again", noon.Add(2*time.Second)) // a write repeated because its commit was uncertain
		got, err := s.Refusals(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, []record.Refusal{
			{Address: a, Code: "call_limit", Message: "all of its 8 calls, again", Count: 2, First: noon, Last: noon.Add(2 * time.Second)},
			{Address: a, Code: "invalid_json", Message: "no JSON\uFFFD", Count: 1, First: noon.Add(time.Second), Last: noon.Add(time.Second)},
		}, got)
		none, err := s.Refusals(t.Context(), begin(t, s, rollout(0, 1)))
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

func TestRefusalsOfARunAreCountedTogether(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a, b := begin(t, s, rollout(0, 0)), begin(t, s, rollout(0, 1))
		for i, r := range []record.Refusal{
			{Address: a, Code: "invalid_json", Message: "first"},
			{Address: a, Code: "call_limit", Message: "second", Count: 3},
			{Address: b, Code: "call_limit", Message: "third"},
		} {
			r.Last = noon.Add(time.Duration(i) * time.Second)
			require.NoError(t, s.AddRefusal(t.Context(), r))
		}
		got, err := s.RefusalsOfRun(t.Context(), "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.RefusalCount{
			{Refusal: record.Refusal{Address: b, Code: "call_limit", Message: "third", Count: 4, First: noon.Add(time.Second), Last: noon.Add(2 * time.Second)}, Attempts: 2},
			{Refusal: record.Refusal{Address: a, Code: "invalid_json", Message: "first", Count: 1, First: noon, Last: noon}, Attempts: 1},
		}, got)
		for _, other := range [][2]string{{"demo", "another"}, {"another", "main"}} {
			none, err := s.RefusalsOfRun(t.Context(), other[0], other[1])
			require.NoError(t, err)
			require.Empty(t, none)
		}
	})
}

func TestRefusalsOfAnAttemptAreBounded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		for i := range 40 {
			require.NoError(t, s.AddRefusal(t.Context(), record.Refusal{
				Address: a, Code: fmt.Sprintf("code_%02d", i), Message: strings.Repeat("é", 1500), Last: noon.Add(time.Duration(i) * time.Second),
			}))
		}
		got, err := s.Refusals(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, got, 33)
		require.Equal(t, "other", got[32].Code)
		require.Equal(t, 8, got[32].Count)
		require.Equal(t, strings.Repeat("é", 1024), got[32].Message)
	})
}

func TestLateRefusalsAreTakenAndThoseOfNobodyAreNot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}))
		require.NoError(t, s.AddRefusal(t.Context(), record.Refusal{Address: a, Code: "call_limit"}))
		got, err := s.Refusals(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.False(t, got[0].Last.IsZero())
		a.Attempt = 7
		require.ErrorIs(t, s.AddRefusal(t.Context(), record.Refusal{Address: a, Code: "call_limit"}), record.ErrNotFound)
	})
}
