package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func anExperiment() record.Experiment {
	return record.Experiment{Run: "demo", Policy: "main", Candidate: 7, Control: 5, Share: 0.25, Status: record.ExperimentRunning, Begun: noon}
}

func ending(e record.Experiment, status record.ExperimentStatus, reason string, result json.RawMessage) record.Experiment {
	e.Status, e.Reason, e.Result, e.Ended = status, reason, result, noon.Add(time.Hour)
	return e
}

func TestAnExperimentBeginsOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		_, err := s.RunningExperiment(ctx, "demo", "main")
		require.ErrorIs(t, err, record.ErrNotFound)
		want := anExperiment()
		got, created, err := s.BeginExperiment(ctx, want)
		require.NoError(t, err)
		require.True(t, created)
		requireEqual(t, want, got)

		again := want
		again.Begun = noon.Add(time.Minute)
		got, created, err = s.BeginExperiment(ctx, again)
		require.NoError(t, err)
		require.False(t, created)
		requireEqual(t, want, got)
		got, err = s.RunningExperiment(ctx, "demo", "main")
		require.NoError(t, err)
		requireEqual(t, want, got)

		for _, change := range []func(*record.Experiment){
			func(e *record.Experiment) { e.Share = 0.5 },
			func(e *record.Experiment) { e.Control = 4 },
		} {
			other := want
			change(&other)
			_, _, err = s.BeginExperiment(ctx, other)
			require.ErrorIs(t, err, record.ErrConflict)
			require.ErrorContains(t, err, "control 5 and share 0.25")
		}
		invalid := want
		invalid.Share = 1.5
		_, _, err = s.BeginExperiment(ctx, invalid)
		require.ErrorContains(t, err, "share: 1.5")
	})
}

func TestAPolicyHasOneRunningExperiment(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		first := anExperiment()
		_, _, err := s.BeginExperiment(ctx, first)
		require.NoError(t, err)
		second := first
		second.Candidate, second.Begun = 9, noon.Add(2*time.Hour)
		_, _, err = s.BeginExperiment(ctx, second)
		require.ErrorIs(t, err, record.ErrConflict)
		require.ErrorContains(t, err, "the experiment with version 7 is running")
		for _, apart := range [][2]string{{"demo", "writer"}, {"other", "main"}} {
			other := first
			other.Run, other.Policy = apart[0], apart[1]
			_, created, err := s.BeginExperiment(ctx, other)
			require.NoError(t, err)
			require.True(t, created, "other policies and runs are apart")
		}

		ended := ending(first, record.ExperimentWithdrawn, "worse", nil)
		require.NoError(t, s.EndExperiment(ctx, ended))
		_, created, err := s.BeginExperiment(ctx, second)
		require.NoError(t, err)
		require.True(t, created)
		got, created, err := s.BeginExperiment(ctx, first)
		require.NoError(t, err, "one that ended is found, and does not begin again")
		require.False(t, created)
		requireEqual(t, ended, got)
		all, err := s.Experiments(ctx, "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Experiment{ended, second}, all)
		all, err = s.Experiments(ctx, "nobody", "main")
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

// The index holds without the store's own check.
func TestTheDatabaseRefusesASecondRunningExperiment(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		_, _, err := s.BeginExperiment(t.Context(), anExperiment())
		require.NoError(t, err)
		insert := `INSERT INTO experiments (run, policy, candidate, control, share, status, reason, result, begun, ended) VALUES ('demo', 'main', $1, 5, 0.5, $2, '', '', 0, 0)`
		db := tables(t, url)
		_, err = db.ExecContext(t.Context(), insert, 8, "running")
		require.ErrorContains(t, err, "experiments")
		_, err = db.ExecContext(t.Context(), insert, 8, "ended")
		require.NoError(t, err)
	})
}

// Each process has its own connection to the database.
func TestExperimentsThatBeginTogetherLeaveOne(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		stores := []*store.Store{open(t, url), open(t, url), open(t, url)}
		for round := range 10 {
			policy := fmt.Sprint("policy ", round)
			var begun atomic.Int32
			var g errgroup.Group
			for i, s := range stores {
				g.Go(func() error {
					e := anExperiment()
					e.Policy, e.Candidate = policy, 10+i
					_, created, err := s.BeginExperiment(t.Context(), e)
					if created {
						begun.Add(1)
					}
					if errors.Is(err, record.ErrConflict) {
						return nil
					}
					return err
				})
			}
			require.NoError(t, g.Wait())
			require.EqualValues(t, 1, begun.Load())
			all, err := stores[0].Experiments(t.Context(), "demo", policy)
			require.NoError(t, err)
			require.Len(t, all, 1)
		}
	})
}

func TestTheResultOfTheLastLookIsKept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		want := anExperiment()
		require.ErrorIs(t, s.PutExperimentResult(ctx, "demo", "main", 7, json.RawMessage(`{}`)), record.ErrNotFound)
		_, _, err := s.BeginExperiment(ctx, want)
		require.NoError(t, err)
		for _, result := range []string{`{"difference":0.1}`, `{"difference":0.2}`} {
			want.Result = json.RawMessage(result)
			require.NoError(t, s.PutExperimentResult(ctx, "demo", "main", 7, want.Result))
			got, err := s.RunningExperiment(ctx, "demo", "main")
			require.NoError(t, err)
			requireEqual(t, want, got)
		}
		want = ending(want, record.ExperimentEnded, "no difference", want.Result)
		without := want
		without.Result = nil
		require.NoError(t, s.EndExperiment(ctx, without))
		err = s.PutExperimentResult(ctx, "demo", "main", 7, json.RawMessage(`{}`))
		require.ErrorIs(t, err, record.ErrConflict)
		require.ErrorContains(t, err, "it is ended")
		all, err := s.Experiments(ctx, "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Experiment{want}, all)
	})
}

func TestAnExperimentEndsOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		e := anExperiment()
		want := ending(e, record.ExperimentPromoted, "better", json.RawMessage(`{"difference":0.3}`))
		require.ErrorIs(t, s.EndExperiment(ctx, want), record.ErrNotFound)
		_, _, err := s.BeginExperiment(ctx, e)
		require.NoError(t, err)
		require.NoError(t, s.EndExperiment(ctx, want))
		require.NoError(t, s.EndExperiment(ctx, ending(e, record.ExperimentPromoted, "repeated", nil)))
		for _, status := range []record.ExperimentStatus{record.ExperimentWithdrawn, record.ExperimentEnded} {
			err := s.EndExperiment(ctx, ending(e, status, "too late", nil))
			require.ErrorIs(t, err, record.ErrConflict)
			require.ErrorContains(t, err, "it is promoted")
		}
		require.ErrorContains(t, s.EndExperiment(ctx, e), `status: "running"`)
		all, err := s.Experiments(ctx, "demo", "main")
		require.NoError(t, err)
		requireEqual(t, []record.Experiment{want}, all)
		_, err = s.RunningExperiment(ctx, "demo", "main")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}
