package testsuite_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// evaluating returns the spec of a run that evaluates a version of another run on four
// tasks, without training.
func evaluating(version string) spec.Spec {
	return spec.Spec{
		Seed:       7,
		Model:      spec.Model{Version: version},
		Agent:      spec.Agent{Func: "calculator"},
		Tasks:      spec.Tasks{Gate: "arithmetic:gate:4"},
		Grader:     spec.Grader{Type: "exact"},
		Evaluation: spec.Evaluation{Only: "gate", Samples: 2},
	}.WithDefaults()
}

func TestAnEvaluationResetAnywhereComesToTheSame(t *testing.T) {
	t.Parallel()
	skipShort(t, "it shows nothing of goroutines that trainings don't")
	ctx := t.Context()
	st := sharedStack(t)
	base := evaluating("")
	mustTrain(ctx, t, st, "evaluation-base", base)
	want := mustTrain(ctx, t, st, "evaluation-reset", evaluating("evaluation-base@0"))
	require.NotNil(t, want.Evaluation)
	require.Equal(t, 8, want.Evaluation.Rollouts)
	before, err := st.Store.Attempts(ctx, "evaluation-reset", record.Gate, 0)
	require.NoError(t, err)

	first := firstExecution(ctx, t, st.Client, "evaluation-reset")
	ids, kinds := points(eventsOf(ctx, t, st.Client, "evaluation-reset"))
	var seen []string
	for _, event := range ids {
		if slices.Contains(seen, kinds[event]) {
			continue
		}
		seen = append(seen, kinds[event])
		run, err := reset(ctx, st.Client, "evaluation-reset", first, event)
		require.NoError(t, err)
		var got workflows.TrainingResult
		require.NoError(t, st.Client.GetWorkflow(ctx, "evaluation-reset", run).Get(ctx, &got), "reset to event %d: %s", event, kinds[event])
		require.Equal(t, want, got, "reset to event %d: %s", event, kinds[event])
		requireWhole(ctx, t, st, "evaluation-reset")
	}
	require.Subset(t, seen, []string{"PrepareRun", "InitPolicy", "PublishVersion", "PromoteVersion", "EvaluationWorkflow", "FinishRun"})
	after, err := st.Store.Attempts(ctx, "evaluation-reset", record.Gate, 0)
	require.NoError(t, err)
	require.Len(t, after, len(before), "nothing is attempted again")
}
