package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// What pages read in parts equals what is listed completely.
func TestSomeOfALongRunAreThoseOfAll(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for number := range 12 {
			_, _, err := s.PutVersion(ctx, model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: number}, Parent: number - 1, Weights: "w", Created: noon})
			require.NoError(t, err)
			for _, kind := range []record.Kind{record.Gate, record.Test} {
				require.NoError(t, s.PutEvaluation(ctx, record.Evaluation{Run: "demo", Policy: "main", At: noon, EvaluationResult: record.EvaluationResult{Kind: kind, Version: number, Mean: 0.5}}))
			}
			require.NoError(t, s.PutQuarantine(ctx, record.Quarantine{Run: "demo", Policy: "main", Step: number / 2, Kind: record.Train, Task: number, Reason: "because", At: noon}))
			if number%2 == 0 {
				require.NoError(t, s.Promote(ctx, move(fmt.Sprintf("gate-%d", number), record.SourceGate, number, max(number-2, -1))))
				continue
			}
			require.NoError(t, s.PutDecision(ctx, record.Decision{
				Run: "demo", Policy: "main", DecisionID: fmt.Sprintf("gate-%d", number), Candidate: number, Verdict: "refused", At: noon.Add(time.Duration(number) * time.Second),
			}))
		}
		versions, err := s.Versions(ctx, "demo", "main")
		require.NoError(t, err)
		some, err := s.VersionsBetween(ctx, "demo", "main", 3, 7)
		require.NoError(t, err)
		requireEqual(t, versions[3:7], some)
		last, err := s.LastVersion(ctx, "demo", "main")
		require.NoError(t, err)
		requireEqual(t, versions[11], last)
		_, err = s.LastVersion(ctx, "demo", "critic")
		require.ErrorIs(t, err, record.ErrNotFound)

		evaluations, err := s.Evaluations(ctx, "demo")
		require.NoError(t, err)
		between, err := s.EvaluationsBetween(ctx, "demo", "main", 3, 7)
		require.NoError(t, err)
		requireEqual(t, evaluations[6:14], between)

		moves, err := s.Promotions(ctx, "demo", "main")
		require.NoError(t, err)
		moved, err := s.PromotionsBetween(ctx, "demo", "main", 2, 6)
		require.NoError(t, err)
		requireEqual(t, moves[1:3], moved)
		latest, err := s.LatestPromotions(ctx, "demo", "main", 2)
		require.NoError(t, err)
		requireEqual(t, []record.Promotion{moves[5], moves[4]}, latest)

		decisions, err := s.Decisions(ctx, "demo", "main")
		require.NoError(t, err)
		decided, err := s.DecisionsBetween(ctx, "demo", "main", 3, 6)
		require.NoError(t, err)
		requireEqual(t, decisions[1:3], decided)
		newest, err := s.LatestDecisions(ctx, "demo", "main", 2)
		require.NoError(t, err)
		requireEqual(t, []record.Decision{decisions[5], decisions[4]}, newest)

		quarantines, err := s.Quarantines(ctx, "demo", "main")
		require.NoError(t, err)
		ofStep, err := s.QuarantinesOfStep(ctx, "demo", "main", 2)
		require.NoError(t, err)
		requireEqual(t, quarantines[4:6], ofStep)
		recent, err := s.LatestQuarantines(ctx, "demo", "main", 3)
		require.NoError(t, err)
		slices.Reverse(quarantines)
		requireEqual(t, quarantines[:3], recent)

		begin(t, s, rollout(0, 0))
		lost := begin(t, s, rollout(1, 0))
		appendCalls(t, s, call(lost, 0, []int32{1}, []int32{2}))
		again := begin(t, s, rollout(1, 0))
		interruptions, err := s.LatestInterruptions(ctx, lost.Run, 5)
		require.NoError(t, err)
		require.Len(t, interruptions, 1, "the others go on")
		calls, err := s.Exchanges(ctx, lost)
		require.NoError(t, err)
		second, err := s.Attempt(ctx, again)
		require.NoError(t, err)
		requireEqual(t, record.Interruption{Address: lost, Begun: interruptions[0].Begun, Last: calls[0].Recorded, Again: second.Begun}, interruptions[0])
		id := rollout(1, 0)
		trials, err := s.TrialsOfStep(ctx, id.Run, id.Kind, id.Step)
		require.NoError(t, err)
		group, err := s.TrialsOfGroup(ctx, id.Run, id.Kind, id.Step, id.Task)
		require.NoError(t, err)
		require.Len(t, group, 2)
		requireEqual(t, trials[1:], group)
	})
}

func TestRunsAreSearchedInTheStore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for i, name := range []string{"sql-a", "sql_b", "maze", "sqlxb"} {
			_, _, err := s.CreateRun(ctx, record.Run{Name: name, WorkflowID: name, ExecutionID: name, Spec: []byte(`{}`), Created: noon.Add(time.Duration(i) * time.Hour)})
			require.NoError(t, err)
		}
		require.NoError(t, s.FinishRun(ctx, "maze", record.Completed, nil))
		require.NoError(t, s.FinishRun(ctx, "sql-a", record.Failed, nil))
		for _, c := range []struct {
			query record.RunQuery
			want  []string
			found int
		}{
			{record.RunQuery{Most: 9}, []string{"sqlxb", "maze", "sql_b", "sql-a"}, 4},
			{record.RunQuery{Most: 2, From: 1}, []string{"maze", "sql_b"}, 4},
			{record.RunQuery{}, nil, 4},
			{record.RunQuery{Word: "SQL", Order: record.OldestRuns, Most: 9}, []string{"sql-a", "sql_b", "sqlxb"}, 3},
			{record.RunQuery{Word: "l_b", Most: 9}, []string{"sql_b"}, 1},
			{record.RunQuery{Word: "%", Most: 9}, nil, 0},
			{record.RunQuery{Word: "!\x00\xff'", Most: 9}, nil, 0},
			{record.RunQuery{Status: record.Completed, Most: 9}, []string{"maze"}, 1},
			{record.RunQuery{Otherwise: true, Most: 9}, []string{"sql-a"}, 1},
			{record.RunQuery{Order: record.RunsByName, Word: "sql", Status: record.Running, Most: 1}, []string{"sql_b"}, 2},
		} {
			runs, found, err := s.RunsLike(ctx, c.query)
			require.NoError(t, err)
			var names []string
			for _, run := range runs {
				names = append(names, run.Name)
			}
			require.Equal(t, c.want, names, "%+v", c.query)
			require.Equal(t, c.found, found, "%+v", c.query)
		}
		longest, _, err := s.RunsLike(ctx, record.RunQuery{Order: record.LongestRuns, Most: 1})
		require.NoError(t, err)
		all, err := s.Runs(ctx)
		require.NoError(t, err)
		for _, run := range all {
			require.LessOrEqual(t, took(run), took(longest[0])+time.Minute)
		}
		_, _, err = s.RunsLike(ctx, record.RunQuery{Order: "colour", Most: 1})
		require.ErrorContains(t, err, `there is no order "colour"`)
	})
}

// took returns how long a run has taken so far.
func took(run record.Run) time.Duration {
	if run.Finished.IsZero() {
		return time.Since(run.Created)
	}
	return run.Finished.Sub(run.Created)
}
