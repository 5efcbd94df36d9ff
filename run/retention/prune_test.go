package retention_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
)

// prune applies a rule to all runs, whenever they ended.
func (r records) prune(rule retention.PruneRule, dryRun bool) retention.PruneReport {
	r.t.Helper()
	rule.Runs = "*"
	said := retention.PruneReport{}
	report, err := r.forgetter().Prune(r.t.Context(), rule, "me", dryRun, func(p retention.PruneReport) error { said = p; return nil })
	require.NoError(r.t, err)
	require.Equal(r.t, said, report, "it says before what it does")
	return report
}

func (r records) finish(name string) {
	r.t.Helper()
	require.NoError(r.t, r.store.FinishRun(r.t.Context(), name, record.Completed, nil))
}

func TestPruningDeletesWeightsOfEndedRunsOnly(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("running", nil, 2)
	r.run("ended", nil, 6)
	r.run("shared", nil, 0)
	_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "refused", Status: record.Refused})
	require.NoError(t, err)
	require.NoError(t, r.store.FinishRun(t.Context(), "refused", record.Refused, nil))
	require.NoError(t, r.put(r.version("shared", 1, 3)), "with the weights of ended@3")
	ctx := t.Context()
	require.NoError(t, r.store.Promote(ctx, record.Promotion{Run: "ended", Policy: model.DefaultPolicy, DecisionID: "a", Version: 1, Previous: -1}))
	require.NoError(t, r.store.Promote(ctx, record.Promotion{Run: "ended", Policy: model.DefaultPolicy, DecisionID: "b", Version: 2, Previous: 1}))
	require.NoError(t, r.store.Promote(ctx, record.Promotion{Run: "ended", Policy: model.DefaultPolicy, DecisionID: "c", Version: 5, Previous: 2}))
	r.finish("ended")
	rule := retention.PruneRule{Weights: true, Keep: spec.Keep{Last: 1}}
	old := rule
	old.OlderThan = time.Hour
	require.Zero(t, r.prune(old, false).Ended, "it ended just now")
	require.Equal(t, 2, r.prune(rule, true).Ended)

	plan := r.prune(rule, true)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, r.loads("ended", 6), "a dry run changes nothing")
	before := len(r.files())
	done := r.prune(rule, false)
	plan.DryRun = false
	require.Equal(t, plan, done)
	require.Len(t, done.Runs, 1)
	require.Equal(t, []int{1, 3, 4}, done.Runs[0].Versions)
	require.Equal(t, 2, done.Runs[0].Files, "of version 4: others need those of 1 and 3")
	require.Equal(t, before-2, len(r.files()))
	require.Equal(t, []int{0, 1, 2, 3, 5, 6}, r.loads("ended", 6))
	require.Equal(t, []int{0, 1, 2}, r.loads("running", 2))
	require.Equal(t, []int{0, 1}, r.loads("shared", 1))

	require.Empty(t, r.prune(rule, false).Runs, "a second time there is nothing")
}

func TestPruningKeepsWhatTheRuleSays(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("a", nil, 9)
	require.NoError(t, r.store.Promote(t.Context(), record.Promotion{Run: "a", Policy: model.DefaultPolicy, DecisionID: "a", Version: 1, Previous: -1}))
	require.NoError(t, r.store.Promote(t.Context(), record.Promotion{Run: "a", Policy: model.DefaultPolicy, DecisionID: "b", Version: 2, Previous: 1}))
	require.NoError(t, r.store.Promote(t.Context(), record.Promotion{Run: "a", Policy: model.DefaultPolicy, DecisionID: "c", Version: 0, Previous: 2}))
	r.finish("a")
	r.prune(retention.PruneRule{Weights: true, Keep: spec.Keep{Last: 4, Every: 5, Promoted: true}}, false)
	require.Equal(t, []int{0, 1, 2, 5, 6, 7, 8, 9}, r.loads("a", 9))
}

func TestAPruningThatWasKilledIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	rule := retention.PruneRule{Runs: "*", Weights: true, Keep: spec.Keep{Last: 1}}
	for left, ended := 0, false; !ended; left++ {
		r := open(t)
		r.run("a", nil, 5)
		r.finish("a")
		f := r.forgetter()
		f.Blobs = &dying{r.blobs, left}
		_, err := f.Prune(t.Context(), rule, "me", false, func(retention.PruneReport) error { return nil })
		if ended = err == nil; !ended {
			require.ErrorIs(t, err, errKilled)
		}
		report := r.prune(rule, false)
		require.Equal(t, ended, len(report.Runs) == 0)
		require.Equal(t, []int{0, 4, 5}, r.loads("a", 5))
	}
}

func TestARunFromWhichAnotherIsAboutToStartIsNotPruned(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("a", nil, 5)
	r.finish("a")
	text := []byte(`{"model":{"version":"a@2"}}`)
	_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "next", Spec: text})
	require.NoError(t, err)
	rule := retention.PruneRule{Weights: true, Keep: spec.Keep{Last: 1}}
	report := r.prune(rule, false)
	require.Empty(t, report.Runs)
	require.Len(t, report.Skipped, 1)
	require.Contains(t, report.Skipped[0], "run next starts from a@2")
	require.Len(t, r.loads("a", 5), 6)
}

func TestARunThatIsStartedFromAfterThePlanIsNotPruned(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("a", nil, 5)
	r.finish("a")
	rule := retention.PruneRule{Runs: "*", Weights: true, Keep: spec.Keep{Last: 1}}
	report, err := r.forgetter().Prune(t.Context(), rule, "me", false, func(plan retention.PruneReport) error {
		require.Len(t, plan.Runs, 1)
		_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "next", Spec: []byte(`{"model":{"version":"a@2"}}`)})
		return err
	})
	require.NoError(t, err)
	require.Empty(t, report.Runs)
	require.Zero(t, report.Bytes)
	require.Len(t, report.Skipped, 1)
	require.Contains(t, report.Skipped[0], "run next starts from a@2")
	require.Len(t, r.loads("a", 5), 6)
}

func TestARunThatCannotBeReadKeepsNoOtherFromBeingPruned(t *testing.T) {
	t.Parallel()
	r := open(t)
	_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "damaged", Spec: []byte(`{"model":7}`)})
	require.NoError(t, err)
	r.finish("damaged")
	r.run("a", nil, 5)
	r.finish("a")
	report := r.prune(retention.PruneRule{Weights: true, Keep: spec.Keep{Last: 1}}, false)
	require.Len(t, report.Runs, 1)
	require.Len(t, report.Skipped, 1)
	require.Contains(t, report.Skipped[0], "run damaged: its spec")
	require.Equal(t, []int{0, 4, 5}, r.loads("a", 5))
}

func TestPrunedRecordsKeepTokensAndRefuseWhatNeedsBodies(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.trained("demo", "")
	r.run("running", nil, 0)
	a := r.attempt("running", 1, 0, "a")
	rule := retention.PruneRule{Records: true}
	plan := r.prune(rule, true)
	require.Positive(t, plan.Bytes)
	done := r.prune(rule, false)
	plan.DryRun = false
	require.Equal(t, plan, done)
	require.Len(t, done.Runs, 1)

	exchanges, err := r.store.Exchanges(ctx, a)
	require.NoError(t, err)
	require.Len(t, exchanges, 1, "its run is under way")
	gone := record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 1}, Attempt: 1}
	_, err = r.store.Exchanges(ctx, gone)
	require.ErrorIs(t, err, record.ErrForgotten)
	require.ErrorContains(t, err, "read bodies of demo/train-1/0/0/1")
	output, err := r.store.Output(ctx, gone)
	require.NoError(t, err)
	require.Zero(t, output)
	calls, err := r.store.Calls(ctx, gone)
	require.NoError(t, err)
	require.Len(t, calls, 1)
	require.Equal(t, []int32{2, 3}, calls[0].Completion)
	p, _ := r.walk("demo", 2)
	require.Equal(t, 3, p.Attempts)
	require.ErrorIs(t, retention.Refusal(ctx, r.store, "demo", 1, 0, true), record.ErrForgotten)
	require.NoError(t, retention.Refusal(ctx, r.store, "demo", 1, 0, false))
	run, err := r.store.Run(ctx, "demo")
	require.NoError(t, err)
	require.ErrorIs(t, r.store.ReopenRun(ctx, run), record.ErrForgotten)
	require.Empty(t, r.prune(rule, false).Runs, "a second time there is nothing")
}

func TestNothingIsPrunedIfItMayNotBeSaid(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("a", nil, 5)
	r.finish("a")
	no := errors.New("no")
	_, err := r.forgetter().Prune(t.Context(), retention.PruneRule{Runs: "*", Weights: true, Keep: spec.Keep{Last: 1}}, "me", false, func(retention.PruneReport) error { return no })
	require.ErrorIs(t, err, no)
	require.Len(t, r.loads("a", 5), 6)
}

func TestADryRunOfPruningWritesNoRow(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("a", nil, 5)
	r.finish("a")
	before, err := r.store.RowsOfRun(t.Context(), "a")
	require.NoError(t, err)
	require.NotEmpty(t, r.prune(retention.PruneRule{Weights: true, Keep: spec.Keep{Last: 1}}, true).Runs)
	after, err := r.store.RowsOfRun(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestAPruningOfRecordsThatWasKilledAtItsEndIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.trained("demo", "")
	rule := retention.PruneRule{Runs: "*", Records: true}
	f := r.forgetter()
	f.Store = &slowly{r.store, 2} // which is while it ends
	_, err := f.Prune(t.Context(), rule, "me", false, func(retention.PruneReport) error { return nil })
	require.ErrorIs(t, err, errKilled)
	again := r.prune(rule, false)
	require.Len(t, again.Runs, 1)
	require.True(t, again.Runs[0].Records)
	require.Zero(t, again.Bytes)
	stones, err := r.store.Forgotten(t.Context(), "demo")
	require.NoError(t, err)
	require.Len(t, stones, 1)
	require.False(t, stones[0].Ended.IsZero())
	require.Empty(t, r.prune(rule, false).Runs)
}

func TestAPruneRuleSaysWhatItRemovesAndWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	whole := retention.PruneRule{Runs: "try-*", OlderThan: 30 * 24 * time.Hour, Weights: true, Keep: spec.Keep{Last: 3, Every: 100, Promoted: true}, Records: true}
	require.NoError(t, whole.Check())
	require.Equal(t, "weights but for the newest 3 versions, multiples of 100, all promoted ones, and bodies of calls of runs try-* that ended longer ago than 30d", whole.Text())
	require.Equal(t, "bodies of calls of runs * that ended longer ago than 36h0m0s", retention.PruneRule{Runs: "*", OlderThan: 36 * time.Hour, Records: true}.Text())
	for name, c := range map[string]struct {
		spoil func(*retention.PruneRule)
		want  string
	}{
		"pattern":  {func(r *retention.PruneRule) { r.Runs = "[" }, `pattern of runs "["`},
		"age":      {func(r *retention.PruneRule) { r.OlderThan = -time.Hour }, "age -1h0m0s"},
		"newest":   {func(r *retention.PruneRule) { r.Keep.Last = 0 }, "at least 1 of the newest (not 0)"},
		"multiple": {func(r *retention.PruneRule) { r.Keep.Every = -1 }, "0 or more for multiples (not -1)"},
		"nothing":  {func(r *retention.PruneRule) { r.Weights, r.Records = false, false }, "neither weights nor records"},
	} {
		rule := whole
		c.spoil(&rule)
		require.ErrorContains(t, rule.Check(), c.want, name)
		_, err := open(t).forgetter().Prune(t.Context(), rule, "me", true, func(retention.PruneReport) error { return nil })
		require.ErrorContains(t, err, c.want, name)
	}
}
