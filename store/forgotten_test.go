package store_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// lateWrites are those of activities that may outlive the run demo.
var lateWrites = map[string]func(*testing.T, *store.Store) error{
	"version": func(t *testing.T, s *store.Store) error {
		_, _, err := s.PutVersion(t.Context(), model.Version{VersionID: model.VersionID{Run: "demo", Policy: "main"}, Manifest: "m", Weights: "w"})
		return err
	},
	"progress": func(t *testing.T, s *store.Store) error {
		return s.PutProgress(t.Context(), model.Progress{VersionID: model.VersionID{Run: "demo", Policy: "main", Number: 1}, Manifest: "m"})
	},
	"file": func(t *testing.T, s *store.Store) error {
		return s.NoteFile(t.Context(), model.VersionID{Run: "demo", Policy: "main", Number: 1}, "f")
	},
	"batch": func(t *testing.T, s *store.Store) error {
		_, _, err := s.PutBatch(t.Context(), record.Batch{Run: "demo", Policy: "main", Step: 1, Digest: "b"})
		return err
	},
	"step": func(t *testing.T, s *store.Store) error {
		return s.PutStep(t.Context(), record.Step{Run: "demo", Policy: "main", Step: 1})
	},
	"choice": func(t *testing.T, s *store.Store) error {
		_, err := s.PutChoice(t.Context(), record.Choice{Run: "demo", Policy: "main", Step: 1})
		return err
	},
	"quarantine": func(t *testing.T, s *store.Store) error {
		return s.PutQuarantine(t.Context(), record.Quarantine{Run: "demo", Policy: "main", Step: 1, Kind: record.Train, Reason: "r"})
	},
	"judgment": func(t *testing.T, s *store.Store) error {
		_, _, err := s.PutJudgment(t.Context(), record.Judgment{Key: "k", Run: "demo", Policy: "main", Step: 1})
		return err
	},
	"nonsense": func(t *testing.T, s *store.Store) error {
		return s.PutNonsense(t.Context(), record.Nonsense{Run: "demo", Policy: "main", Step: 1, Judgment: "k", Try: 1})
	},
	"reflection": func(t *testing.T, s *store.Store) error {
		_, _, err := s.PutReflection(t.Context(), record.Reflection{Key: "k", Run: "demo", Request: "r"})
		return err
	},
	"search answer": func(t *testing.T, s *store.Store) error {
		_, _, err := s.PutSearchAnswer(t.Context(), record.SearchAnswer{Run: "demo", Request: "r", Answer: []byte(`{}`)})
		return err
	},
	"prompts": func(t *testing.T, s *store.Store) error {
		return s.PutPromptVersion(t.Context(), record.PromptVersion{Run: "demo", Prompts: "p"})
	},
	"evaluation": func(t *testing.T, s *store.Store) error {
		return s.PutEvaluation(t.Context(), record.Evaluation{Run: "demo", Policy: "main", Kind: record.Gate, Tasks: 1, Rollouts: 1})
	},
	"decision": func(t *testing.T, s *store.Store) error {
		return s.PutDecision(t.Context(), record.Decision{Run: "demo", Policy: "main", DecisionID: "d", Verdict: "reject"})
	},
	"promotion": func(t *testing.T, s *store.Store) error {
		return s.Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: "p", Version: 0, Previous: -1})
	},
	"attempt": func(t *testing.T, s *store.Store) error {
		_, err := s.BeginAttempt(t.Context(), rollout(0, 0), "task-x", terms, "k")
		return err
	},
}

func TestAnActivityThatStillRunsLeavesNothingOfAForgottenRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		r := endedRun(t, s, "demo")
		for what, write := range lateWrites {
			require.NoError(t, write(t, s), what)
		}
		stone := record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "me", Begun: noon}
		_, _, err := s.BeginForgetting(t.Context(), r, stone)
		require.NoError(t, err)
		refused := func() {
			for what, write := range lateWrites {
				require.ErrorIs(t, write(t, s), record.ErrForgotten, what)
			}
			rows, err := s.RowsOfRun(t.Context(), "demo")
			require.NoError(t, err)
			require.Empty(t, rows)
		}
		require.NoError(t, s.RemoveRows(t.Context(), "demo"))
		refused()
		require.NoError(t, s.EndForgetting(t.Context(), stone))
		refused()
	})
}

func TestTextsThatAreSentLateDoNotBringBackWhatWasForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		_, _, err := s.CreateRun(ctx, record.Run{Name: "demo", ExecutionID: "x"})
		require.NoError(t, err)
		attempt := func(task int, id string) record.Address {
			a, err := s.BeginAttempt(ctx, rollout(task, 0), id, terms, "k")
			require.NoError(t, err)
			return a
		}
		writes := func(a record.Address) []error {
			_, failure := s.PutGradingFailure(ctx, a, "a secret")
			return []error{
				s.PutSpans(ctx, a, []record.Span{{Trace: "t", ID: "i", Name: "a secret"}}),
				s.AddRefusal(ctx, record.Refusal{Address: a, Code: "c", Message: "a secret"}),
				failure,
			}
		}
		taken := func(a record.Address) {
			t.Helper()
			for _, err := range writes(a) {
				require.NoError(t, err)
			}
		}
		refused := func(a record.Address, why string) {
			t.Helper()
			for _, err := range writes(a) {
				require.ErrorIs(t, err, record.ErrForgotten)
				require.ErrorIs(t, err, record.ErrFenced, "exporters don't send again")
				require.ErrorContains(t, err, why)
			}
		}
		a, b := attempt(0, "secret"), attempt(1, "other")
		require.NoError(t, s.FinishRun(ctx, "demo", record.Completed, nil))
		r, err := s.Run(ctx, "demo")
		require.NoError(t, err)
		taken(a)
		for _, step := range []struct {
			stone    record.Forgotten
			why      string
			of, kept []record.Address
		}{
			{record.Forgotten{What: record.ForgottenTask, Task: "secret"}, `its task "secret": it was forgotten`, []record.Address{a}, []record.Address{b}},
			{record.Forgotten{What: record.ForgottenRecords}, "the bodies of its calls: it was forgotten", []record.Address{b}, nil},
			{record.Forgotten{What: record.ForgottenRun}, "the run: it was forgotten", []record.Address{a, b}, nil},
		} {
			step.stone.Run, step.stone.By = "demo", "me"
			_, _, err = s.BeginForgetting(ctx, r, step.stone)
			require.NoError(t, err)
			for _, one := range step.of {
				refused(one, step.why)
			}
			if step.stone.What == record.ForgottenTask {
				require.NoError(t, s.EndForgetting(ctx, step.stone))
			}
			for _, one := range step.kept {
				taken(one)
			}
			if step.stone.What != record.ForgottenRun {
				taken(attempt(0, "secret"))
			}
		}
	})
}

func TestAFileThatAForgottenRunLeftIsAbandoned(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		_, err := tables(t, url).ExecContext(t.Context(), `INSERT INTO pending_files (run, policy, number, digest, noted) VALUES ('gone', 'main', 1, 'left', 1)`)
		require.NoError(t, err)
		var gone []string
		_, err = s.CollectAbandoned(t.Context(), time.Now(), nil, func(abandoned, _, _ []string) ([]string, error) { gone = abandoned; return nil, nil })
		require.NoError(t, err)
		require.Equal(t, []string{"left"}, gone)
	})
}

// An agent may still run when what its attempt left is removed.
func TestAnAgentThatStillRunsAddsNoCallAndNoRewardToWhatWasForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		_, _, err := s.CreateRun(ctx, record.Run{Name: "demo", ExecutionID: "x"})
		require.NoError(t, err)
		require.NoError(t, s.FinishRun(ctx, "demo", record.Completed, nil)) // by another worker
		r, err := s.Run(ctx, "demo")
		require.NoError(t, err)
		a, err := s.BeginAttempt(ctx, rollout(0, 0), "secret", terms, "k")
		require.NoError(t, err)
		b, err := s.BeginAttempt(ctx, rollout(1, 0), "other", terms, "k")
		require.NoError(t, err)
		seqs := map[record.Address]int{}
		writes := func(a record.Address) []error {
			seq := seqs[a]
			seqs[a]++
			c := call(a, seq, []int32{1, 2}, []int32{3})
			return []error{
				s.AppendCall(ctx, &c),
				s.PutReward(ctx, record.Reward{Address: a, Name: fmt.Sprint("part ", seq), Value: 1, Source: "agent"}),
				s.PutReward(ctx, record.Reward{Address: a, Name: fmt.Sprint("grade ", seq), Value: 1, Source: store.Grader}),
			}
		}
		taken := func(a record.Address) {
			t.Helper()
			for i, err := range writes(a) {
				require.NoError(t, err, i)
			}
		}
		refused := func(a record.Address) {
			t.Helper()
			for i, err := range writes(a) {
				require.ErrorIs(t, err, record.ErrFenced, i)
			}
			require.ErrorIs(t, s.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Result: "a secret"}), record.ErrConflict)
		}
		taken(a)
		taken(b)
		stone := record.Forgotten{Run: "demo", What: record.ForgottenTask, Task: "secret", By: "me"}
		_, _, err = s.BeginForgetting(ctx, r, stone)
		require.NoError(t, err)
		require.NoError(t, s.EmptyAttempt(ctx, a))
		refused(a)
		taken(b)
		require.NoError(t, s.EndForgetting(ctx, stone))
		refused(a)
		calls, err := s.Calls(ctx, a)
		require.NoError(t, err)
		require.Empty(t, calls)

		_, _, err = s.BeginForgetting(ctx, r, record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "me"})
		require.NoError(t, err)
		require.NoError(t, s.RemoveRows(ctx, "demo"))
		for _, err := range writes(b) {
			require.Error(t, err)
		}
		rows, err := s.RowsOfRun(ctx, "demo")
		require.NoError(t, err)
		require.Empty(t, rows)
	})
}

func TestTwoRemovalsFromARunComeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		splits := map[record.Kind]record.Split{record.Train: {Digest: "one", Count: 2}}
		_, _, err := s.CreateRun(ctx, record.Run{Name: "demo", ExecutionID: "x", Splits: splits})
		require.NoError(t, err)
		require.NoError(t, s.FinishRun(ctx, "demo", record.Completed, nil))
		r, err := s.Run(ctx, "demo")
		require.NoError(t, err)
		begin := func(what record.ForgottenKind, task string) error {
			_, _, err := s.BeginForgetting(ctx, r, record.Forgotten{Run: "demo", What: what, Task: task, By: "me"})
			return err
		}
		require.NoError(t, begin(record.ForgottenTask, "a"))
		require.NoError(t, begin(record.ForgottenTask, "a"), "the same one")
		require.ErrorIs(t, begin(record.ForgottenTask, "b"), record.ErrConflict)
		require.ErrorIs(t, begin(record.ForgottenRun, ""), record.ErrConflict)
		require.NoError(t, s.SetSplits(ctx, "demo", map[record.Kind]record.Split{record.Train: {Digest: "without a", Count: 2}}))
		require.NoError(t, s.EndForgetting(ctx, record.Forgotten{Run: "demo", What: record.ForgottenTask, Task: "a"}))
		err = begin(record.ForgottenTask, "b")
		require.ErrorIs(t, err, record.ErrConflict, "it was planned with the snapshot that has a")
		require.ErrorContains(t, err, "another task was removed from its split train meanwhile")
		r, err = s.Run(ctx, "demo")
		require.NoError(t, err)
		require.NoError(t, begin(record.ForgottenTask, "b"))
	})
}

func TestRunsOnATaskAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	plans := store.Plans(s, "EXPLAIN QUERY PLAN")
	_, err := s.RunsOnTask(t.Context(), "a")
	require.NoError(t, err)
	all, err := plans(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	for _, plan := range all {
		require.Contains(t, strings.Join(plan, "\n"), "attempts_of_task")
	}
}
