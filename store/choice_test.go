package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestTheFirstChoiceOfAStepStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		_, err := s.Choice(t.Context(), "demo", model.DefaultPolicy, 2)
		require.ErrorIs(t, err, record.ErrNotFound)
		rate := 0.25
		want := record.Choice{
			Run: "demo", Policy: model.DefaultPolicy, Step: 2, Settings: json.RawMessage(`{"type":"band"}`), Places: 1, Left: 9,
			Draws: []record.Draw{{Task: 3, Why: record.ReasonBand, Rate: &rate}, {Task: 1, Why: record.ReasonNew}}, At: noon,
		}
		got, err := s.PutChoice(t.Context(), want)
		require.NoError(t, err)
		requireEqual(t, want, got)
		other := want
		other.Draws, other.At = []record.Draw{{Task: 7, Why: record.ReasonNew}}, noon.Add(1)
		got, err = s.PutChoice(t.Context(), other)
		require.NoError(t, err)
		requireEqual(t, want, got)

		earlier := other
		earlier.Step = 1
		_, err = s.PutChoice(t.Context(), earlier)
		require.NoError(t, err)
		all, err := s.Choices(t.Context(), "demo", model.DefaultPolicy)
		require.NoError(t, err)
		requireEqual(t, []record.Choice{earlier, want}, all)
		all, err = s.Choices(t.Context(), "other", model.DefaultPolicy)
		require.NoError(t, err)
		require.Empty(t, all)
	})
}
