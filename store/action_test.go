package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestAnActionIsAskedOnceAndAnsweredOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		version := 0
		want := record.Action{
			ID: "12345678", Run: "demo", Name: record.ActionSet, By: "ada@host", Reason: "a\x00 try \xff",
			Input: record.ActionInput{Version: &version, Values: map[string]float64{"loss.entropy": 1e-4}}, At: noon, Outcome: record.ActionAsked,
		}
		var all errgroup.Group
		for range 8 { // a double click
			all.Go(func() error {
				got, err := s.BeginAction(t.Context(), want)
				if err == nil && got.Outcome != record.ActionAsked {
					err = fmt.Errorf("it is %s", got.Outcome)
				}
				return err
			})
		}
		require.NoError(t, all.Wait())
		changed := want
		changed.By = "eve@host"
		_, err := s.BeginAction(t.Context(), changed)
		require.ErrorIs(t, err, record.ErrConflict)

		done := record.ActionResult{Message: "set", Step: 3}
		require.NoError(t, s.EndAction(t.Context(), want.ID, record.ActionDone, done))
		require.NoError(t, s.EndAction(t.Context(), want.ID, record.ActionRefused, record.ActionResult{}), "the first answer holds")
		got, err := s.BeginAction(t.Context(), want)
		require.NoError(t, err)
		want.Outcome, want.Result, want.Reason = record.ActionDone, done, got.Reason
		require.NotContains(t, got.Reason, "\xff")
		requireEqual(t, want, got)
		_, err = s.Action(t.Context(), "87654321")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestActionsAreListedByRunTheNewestFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		for i := range 5 {
			_, err := s.BeginAction(t.Context(), record.Action{ID: strings.Repeat(string(rune('a'+i)), 8), Run: []string{"demo", "other"}[i%2], Name: record.ActionPause, By: "ada", At: noon.Add(time.Duration(i) * time.Minute)})
			require.NoError(t, err)
		}
		all, err := s.Actions(t.Context(), "demo", 2)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, []string{"eeeeeeee", "cccccccc"}, []string{all[0].ID, all[1].ID})
		none, err := s.Actions(t.Context(), "none", 2)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}
