package testsuite_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

func TestARunEndsWithItsBudgetAndGoesOnWithALargerOne(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	s := deciding(1, 4)
	s.Budget = &spec.Budget{Calls: 1_000_000, Hours: 10}
	want := mustTrain(ctx, t, st, "large-budget", s)
	require.Nil(t, want.Stopped)

	s.Budget = &spec.Budget{Calls: 60}
	got := mustTrain(ctx, t, st, "small-budget", s)
	require.Less(t, got.Steps, 4)
	require.Equal(t, "the budget", got.Stopped.By)
	require.Regexp(t, `^budget\.calls is used up, \d+ of 60$`, got.Stopped.Reason)
	run, err := st.Store.Run(ctx, "small-budget")
	require.NoError(t, err)
	require.Equal(t, record.Stopped, run.Status)
	spent, err := st.Store.Spent(ctx, "small-budget")
	require.NoError(t, err)
	require.GreaterOrEqual(t, spent.Calls, 60)

	retrier := runstate.Retrier{Client: st.Client, Namespace: client.DefaultNamespace, Store: st.Store}
	_, err = retrier.Retry(ctx, run, "a test")
	require.ErrorContains(t, err, "`fulgurite retry small-budget --steps N --set budget.calls=NUMBER` lets it go on")
	execution, _, err := retrier.RetryWith(ctx, run, "larger", workflows.SetInput{
		By: "ada", Values: map[string]float64{spec.KeySteps: 4, spec.KeyBudgetCalls: 1_000_000},
	})
	require.NoError(t, err)
	var rest workflows.TrainingResult
	require.NoError(t, st.Client.GetWorkflow(ctx, "small-budget", execution).Get(ctx, &rest))
	require.Equal(t, want.Weights, rest.Weights)
	require.Nil(t, rest.Stopped)
	requireWhole(ctx, t, st, "small-budget")
}

func TestASearchEndsWithItsBudget(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	st := sharedStack(t)
	var asked atomic.Int64
	s := optimizing(t, spec.AlgorithmGEPA, hintingReflector(t, &asked))
	s.Optimizer.Perfect = new(float64)
	*s.Optimizer.Perfect = 2 // so that nothing else ends it
	s.Optimizer.Budget = spec.OptimizerBudget{Minibatch: 40000, Validation: 40000, Reflections: 40000}
	s.Budget = &spec.Budget{Calls: 200}
	got, err := optimize(ctx, st, "search-budget", s)
	require.NoError(t, err)
	require.Equal(t, search.EndStopped, got.SearchEnd.Reason)
	require.Equal(t, "the budget", got.Stopped.By)
	require.Regexp(t, `^budget\.calls is used up, \d+ of 200$`, got.Stopped.Reason)
}
