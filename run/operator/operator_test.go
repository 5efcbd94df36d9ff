package operator_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/store"
)

// The tests of the command, which have a Temporal server, cover actions that workflows
// do.

var errAway = errors.New("no Temporal there")

func newOperator(t *testing.T) (operator.Operator, *store.Store) {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "demo"})
	require.NoError(t, err)
	for v := range 4 {
		_, _, err := s.PutVersion(t.Context(), model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: v}})
		require.NoError(t, err)
		require.NoError(t, s.Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: string(rune('a' + v)), Version: v, Previous: v - 1}))
	}
	return operator.Operator{Store: s, Dial: func(context.Context) (client.Client, string, func(), error) { return nil, "", nil, errAway }}, s
}

func rollback(id string) record.Action {
	return record.Action{ID: id, Run: "demo", Name: record.ActionRollback, By: "ada@host", Reason: "it swears"}
}

func promotions(t *testing.T, s *store.Store) int {
	t.Helper()
	all, err := s.Promotions(t.Context(), "demo", "main")
	require.NoError(t, err)
	return len(all) - 4
}

func TestOneIDIsDoneOnce(t *testing.T) {
	t.Parallel()
	o, s := newOperator(t)
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			a, err := o.Act(t.Context(), rollback("one-click"))
			if err == nil && a.Result.Message != "rollback: version 3 → 2 by ada@host (it swears)" {
				err = errors.New(a.Result.Message)
			}
			return err
		})
	}
	require.NoError(t, all.Wait())
	require.Equal(t, 1, promotions(t, s))
	a, err := o.Act(t.Context(), rollback("another-click"))
	require.NoError(t, err)
	require.Contains(t, a.Result.Message, "version 2 → 1")
}

func TestWhoeverIsKilledInTheMiddleMayAskAgain(t *testing.T) {
	t.Parallel()
	o, s := newOperator(t)
	_, err := s.BeginAction(t.Context(), rollback("killed-before"))
	require.NoError(t, err)
	_, err = o.Act(t.Context(), rollback("killed-before"))
	require.NoError(t, err)
	require.Equal(t, 1, promotions(t, s))

	_, err = s.BeginAction(t.Context(), rollback("killed-after"))
	require.NoError(t, err)
	moved, err := operator.Mover{Store: s, Run: "demo", Policy: "main", By: "ada@host", ID: "killed-after"}.Rollback(t.Context(), nil, "it swears")
	require.NoError(t, err)
	require.Equal(t, 1, moved.Version)
	a, err := o.Act(t.Context(), rollback("killed-after"))
	require.NoError(t, err)
	require.Contains(t, a.Result.Message, "version 2 → 1")
	require.Equal(t, 2, promotions(t, s))
}

func TestARefusalIsOnRecordAndNoAnswerIsNone(t *testing.T) {
	t.Parallel()
	o, s := newOperator(t)
	version := 9
	a, err := o.Act(t.Context(), record.Action{ID: "refused-1", Run: "demo", Name: record.ActionPin, By: "ada", Input: record.ActionInput{Version: &version}})
	require.ErrorIs(t, err, operator.ErrRefused)
	require.Contains(t, a.Result.Message, "has no version 9")
	stored, err := s.Action(t.Context(), "refused-1")
	require.NoError(t, err)
	require.Equal(t, record.ActionRefused, stored.Outcome)

	a, err = o.Act(t.Context(), record.Action{ID: "away-123", Run: "demo", Name: record.ActionPause, By: "ada"})
	require.ErrorIs(t, err, errAway)
	require.Equal(t, record.ActionAsked, a.Outcome)
	stored, err = s.Action(t.Context(), "away-123")
	require.NoError(t, err)
	require.Equal(t, record.ActionAsked, stored.Outcome, "nobody knows")

	_, err = o.Act(t.Context(), record.Action{ID: "nobody-1", Run: "demo", Name: record.ActionPause})
	require.ErrorIs(t, err, operator.ErrRefused)
	require.ErrorContains(t, err, "by: missing")
	other := rollback("refused-1")
	_, err = o.Act(t.Context(), other)
	require.ErrorContains(t, err, "with this id but other contents")
}

func TestAnActionOnAForgottenRunIsRefusedAndLeavesNoRow(t *testing.T) {
	t.Parallel()
	o, s := newOperator(t)
	ctx := t.Context()
	require.NoError(t, s.FinishRun(ctx, "demo", record.Completed, nil))
	run, err := s.Run(ctx, "demo")
	require.NoError(t, err)
	stone := record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "ada"}
	_, _, err = s.BeginForgetting(ctx, run, stone)
	require.NoError(t, err)
	require.NoError(t, s.RemoveRows(ctx, "demo"))
	refused := func() {
		for _, name := range []record.ActionName{record.ActionRollback, record.ActionPause, record.ActionRetry} {
			a := rollback("late-" + string(name))
			a.Name = name
			a, err := o.Act(ctx, a)
			require.ErrorIs(t, err, operator.ErrRefused)
			require.Contains(t, a.Result.Message, "it was forgotten on ")
		}
		rows, err := s.RowsOfRun(ctx, "demo")
		require.NoError(t, err)
		require.Empty(t, rows)
	}
	refused()
	require.NoError(t, s.EndForgetting(ctx, stone))
	refused()
}

func TestWhatIsRecordedIsSetForARunThatHasEnded(t *testing.T) {
	t.Parallel()
	o, s := newOperator(t)
	ctx := t.Context()
	require.NoError(t, s.FinishRun(ctx, "demo", record.Completed, nil))
	set := func(id, run, value string) (record.Action, error) {
		return o.Act(ctx, record.Action{ID: id, Run: run, Name: record.ActionSet, By: "ada", Reason: "users agreed", Input: record.ActionInput{Record: value}})
	}
	a, err := set("record-all", "demo", "all")
	require.NoError(t, err)
	require.Equal(t, "traffic.record is all from the next request on, set by ada", a.Result.Message)
	setting, err := s.TrafficSetting(ctx, "demo")
	require.NoError(t, err)
	require.Equal(t, "all", setting)
	stored, err := s.Action(ctx, "record-all")
	require.NoError(t, err)
	require.Equal(t, record.ActionDone, stored.Outcome)
	require.Equal(t, "all", stored.Input.Record)
	_, err = set("record-all", "demo", "none")
	require.ErrorContains(t, err, "with this id but other contents")

	_, err = set("record-odd", "demo", "some")
	require.ErrorIs(t, err, operator.ErrRefused)
	require.ErrorContains(t, err, `traffic.record is "some": want none, with-consent, all`)
	_, err = set("record-none", "nobody", "all")
	require.ErrorContains(t, err, "there is no run of that name")
	_, err = operator.Operator{Dial: o.Dial}.Act(ctx, record.Action{ID: "no-store-1", Run: "demo", Name: record.ActionSet, By: "ada", Input: record.ActionInput{Record: "all"}})
	require.ErrorContains(t, err, "--store")
	_, err = o.Act(ctx, record.Action{ID: "both-at-once", Run: "demo", Name: record.ActionSet, By: "ada", Input: record.ActionInput{Record: "all", Values: map[string]float64{"a": 1}}})
	require.ErrorContains(t, err, "it is set alone")
	setting, err = s.TrafficSetting(ctx, "demo")
	require.NoError(t, err)
	require.Equal(t, "all", setting)
}
