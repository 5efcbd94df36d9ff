package testsuite_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/sdk/v1"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// holding is the calculator, but the first attempt at some rollouts waits until it is
// ended.
type holding struct {
	held map[record.RolloutID]chan struct{} // closed once it waits
	once map[record.RolloutID]*sync.Once
}

func hold(run string, rollouts ...record.RolloutID) holding {
	h := holding{map[record.RolloutID]chan struct{}{}, map[record.RolloutID]*sync.Once{}}
	for _, id := range rollouts {
		id.Run = run
		h.held[id], h.once[id] = make(chan struct{}), new(sync.Once)
	}
	return h
}

func (h holding) solve(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	first := false
	if once, ok := h.once[env.Rollout]; ok {
		once.Do(func() { first = true })
	}
	if first {
		close(h.held[env.Rollout])
		<-ctx.Done()
		return "", ctx.Err()
	}
	return calculate(ctx, task, env)
}

// The rollouts that are held in these tests, and whose workflows they belong to.
func stopped() (rollouts []record.RolloutID, children []string) {
	return []record.RolloutID{
		{Kind: record.Test}, {Kind: record.Train, Step: 1, Task: 1, Sample: 2}, {Kind: record.Gate, Step: 2, Task: 3},
	}, []string{"/test-0", "/train-1/1", "/gate-2"}
}

func terminate(ctx context.Context, st *stack.Stack, id string) error {
	return st.Client.TerminateWorkflow(ctx, id, "", "pressed the button")
}

func cancel(ctx context.Context, st *stack.Stack, id string) error {
	return st.Client.CancelWorkflow(ctx, id, "")
}

// trainStopped trains a run of two steps, and stops each of its held children in the
// middle.
func trainStopped(ctx context.Context, t *testing.T, run string, stop func(ctx context.Context, st *stack.Stack, id string) error) (*stack.Stack, workflows.TrainingResult) {
	t.Helper()
	rollouts, children := stopped()
	h := hold(run, rollouts...)
	st := startWith(ctx, t, t.TempDir(), agent.Registry{"calculator": calculate, "holding": h.solve})
	s := small(2)
	s.Agent.Func = "holding"
	ended := inBackground(ctx, st, run, s)
	for i, id := range rollouts {
		id.Run = run
		select {
		case <-h.held[id]:
			require.NoError(t, stop(ctx, st, run+children[i]))
		case err := <-ended:
			require.NoError(t, err)
			require.Fail(t, "the run ended without it", "%s", id)
		}
	}
	require.NoError(t, <-ended)
	var result workflows.TrainingResult
	require.NoError(t, st.Client.GetWorkflow(ctx, run, "").Get(ctx, &result))
	return st, result
}

func TestChildrenThatWereTerminatedAreStartedAgainAndTheWeightsAreTheSame(t *testing.T) {
	t.Parallel()
	skipShort(t, "other runs use the same goroutines")
	ctx := t.Context()
	want := mustTrain(ctx, t, sharedStack(t), "not-stopped", small(2))

	st, got := trainStopped(ctx, t, "stopped", terminate)
	defer func() { require.NoError(t, st.Close()) }()
	require.Equal(t, want.Weights, got.Weights)
	require.Equal(t, want.Promoted, got.Promoted)
	require.Equal(t, want.Before, got.Before)
	require.Equal(t, want.After, got.After)
	excluded, err := st.Store.Quarantines(ctx, "stopped", "main")
	require.NoError(t, err)
	require.Empty(t, excluded)
}

func TestAPersonCancelsSingleTasksAndEvaluations(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st, got := trainStopped(ctx, t, "stopped", cancel)
	defer func() { require.NoError(t, st.Close()) }()
	require.Equal(t, 2, got.Steps)
	require.Nil(t, got.Before, "its evaluation was cancelled")
	excluded, err := st.Store.Quarantines(ctx, "stopped", "main")
	require.NoError(t, err)
	require.Len(t, excluded, 1)
	require.Equal(t, 1, excluded[0].Task)
	require.Equal(t, "stopped/train-1/1 was cancelled in Temporal", excluded[0].Reason)
	decisions, err := st.Store.Decisions(ctx, "stopped", "main")
	require.NoError(t, err)
	require.Len(t, decisions, 1)
	require.Contains(t, decisions[0].Reason, "stopped/gate-2 was cancelled in Temporal")
	require.Zero(t, got.Promoted)
	run, err := st.Store.Run(ctx, "stopped")
	require.NoError(t, err)
	require.Equal(t, record.Completed, run.Status)
}

// Temporal's Web UI lists each workflow with a summary of its purpose. It shows no
// secrets except those in the input with which the run was started.
func TestChildrenHaveASummaryAndNoSecrets(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	var asked atomic.Int64
	served := tiny(spec.Agent{Service: &spec.Service{URL: theirService(t, &asked), Headers: map[string]string{"X-Team": "ours", "X-Token": "hush-hush"}}})
	served.Tasks.Test = "arithmetic:test:4"
	mustTrain(ctx, t, st, "summary-served", served.WithDefaults())
	started := tiny(spec.Agent{Command: []string{"echo", "0"}, Environment: map[string]string{"TOKEN": "hush-hush"}})
	started.Tasks.Test = "arithmetic:test:4"
	mustTrain(ctx, t, st, "summary-started", started.WithDefaults())
	for _, run := range []string{"summary-served", "summary-started"} {
		for id, says := range map[string]string{"/train-1/1": "step 1, task 1 ", "/test-0": "version 0 on the test split"} {
			d, err := st.Client.DescribeWorkflow(ctx, run+id, "")
			require.NoError(t, err)
			summary, err := d.GetStaticSummary()
			require.NoError(t, err)
			require.Contains(t, summary, says)
		}
		shown, err := st.Client.QueryWorkflow(ctx, run+"/train-1/1", "", "__temporal_workflow_metadata")
		require.NoError(t, err)
		var about sdk.WorkflowMetadata
		require.NoError(t, shown.Get(&about))
		require.Regexp(t, "^Task `.+: .+`$", about.CurrentDetails)
		for _, id := range []string{run, run + "/train-1/1", run + "/test-0"} {
			for _, e := range eventsOf(ctx, t, st.Client, id) {
				prepares := e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() == "PrepareRun"
				if id == run && (prepares || e.EventType == enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED) {
					continue // their input is the spec
				}
				require.NotContains(t, e.String(), "hush-hush", "event %d of %s", e.EventId, id)
			}
		}
	}
}
