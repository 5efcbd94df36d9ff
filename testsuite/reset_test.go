package testsuite_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// everyReset has TestARunResetAnywhereEndsInTheSameWeights reset to every workflow
// task, which takes minutes, and not to one of each kind.
var everyReset = flag.Bool("every-reset", false, "reset runs to every workflow task of their history")

// reset resets an execution to before the workflow task that the event completed.
func reset(ctx context.Context, c client.Client, id, run string, event int64) (string, error) {
	r, err := c.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &common.WorkflowExecution{WorkflowId: id, RunId: run},
		Reason: "a test", WorkflowTaskFinishEventId: event, RequestId: fmt.Sprintf("%s-%d-%d", run, event, time.Now().UnixNano()),
	})
	return r.GetRunId(), err
}

// points returns the workflow tasks of a history, each with the first command that it
// issued.
func points(events []*history.HistoryEvent) (ids []int64, kinds map[int64]string) {
	kinds = map[int64]string{}
	for _, e := range events {
		if e.EventType == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			ids = append(ids, e.EventId)
			kinds[e.EventId] = "nothing"
			continue
		}
		var by int64
		var kind string
		switch e.EventType {
		case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			a := e.GetActivityTaskScheduledEventAttributes()
			by, kind = a.WorkflowTaskCompletedEventId, a.ActivityType.Name
		case enums.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
			a := e.GetStartChildWorkflowExecutionInitiatedEventAttributes()
			by, kind = a.WorkflowTaskCompletedEventId, a.WorkflowType.Name
		case enums.EVENT_TYPE_TIMER_STARTED:
			by, kind = e.GetTimerStartedEventAttributes().WorkflowTaskCompletedEventId, "timer"
		case enums.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
			by, kind = e.GetWorkflowExecutionCompletedEventAttributes().WorkflowTaskCompletedEventId, "end"
		default:
			continue
		}
		if kinds[by] == "nothing" {
			kinds[by] = kind
		}
	}
	return ids, kinds
}

// deciding returns the spec of a run with a decision after each step. Most decisions
// promote.
func deciding(lag, steps int) spec.Spec {
	s := lagging(lag, steps)
	s.Tasks.Gate, s.Tasks.Test, s.Evaluation.Every = "arithmetic:gate:10", "arithmetic:test:4", 1
	s.Promotion.Significance, s.Training.Optimizer.LearningRate = 1, 2e-3
	return s.WithDefaults()
}

func TestARunResetAnywhereEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	skipShort(t, "TestARunResetWhileItRuns does the same while goroutines meet")
	all := []string{"PrepareRun", "InitPolicy", "EvaluationWorkflow", "PromoteVersion", "RolloutWorkflow", "AssignCredit", "TrainStep", "PublishVersion", "DecidePromotion", "RecordStep", "FinishRun", "end"}
	for lag, wanted := range [][]string{all, {"RolloutWorkflow", "TrainStep", "DecidePromotion"}} {
		t.Run(fmt.Sprintf("lag %d", lag), func(t *testing.T) {
			t.Parallel()
			if lag > 0 {
				skipKind(t, "a run without a lag shows it")
			}
			ctx := t.Context()
			st, name := sharedStack(t), fmt.Sprintf("reset-lag-%d", lag)
			want := mustTrain(ctx, t, st, name, deciding(lag, 2))
			require.NotZero(t, want.Promoted)
			first := firstExecution(ctx, t, st.Client, name)
			ids, kinds := points(eventsOf(ctx, t, st.Client, name))
			seen := map[string]bool{}
			for _, event := range ids {
				if (seen[kinds[event]] || !slices.Contains(wanted, kinds[event])) && !*everyReset {
					continue
				}
				seen[kinds[event]] = true
				run, err := reset(ctx, st.Client, name, first, event)
				require.NoError(t, err)
				var got workflows.TrainingResult
				require.NoError(t, st.Client.GetWorkflow(ctx, name, run).Get(ctx, &got), "reset to event %d: %s", event, kinds[event])
				require.Equal(t, want, got, "reset to event %d: %s", event, kinds[event])
				requireWhole(ctx, t, st, name)
				require.Equal(t, first, firstExecution(ctx, t, st.Client, name), "it is still the same chain")
			}
			for _, kind := range wanted {
				require.True(t, seen[kind], kind)
			}
		})
	}
}

// requireWhole checks that a run is recorded as completed, and that every prompt is
// accounted for. If a run was reset to a point after its record was closed, it may be
// recorded as running until the record is compared with Temporal again.
func requireWhole(ctx context.Context, t *testing.T, st *stack.Stack, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		run, err := st.Store.Run(ctx, name)
		return err != nil || run.Status != record.Running
	}, time.Minute, 10*time.Millisecond)
	r, err := report.Of(ctx, st.Store, st.Records.Blobs, name, "main")
	require.NoError(t, err)
	require.Equal(t, record.Completed, r.Status)
	require.Empty(t, r.Faults)
}

// gated is an agent that waits, once a step's rollouts have begun, until it may go on.
type gated struct {
	step    int
	reached chan record.RolloutID
	open    chan struct{}
}

func newGated(step int) *gated {
	return &gated{step: step, reached: make(chan record.RolloutID, 1000), open: make(chan struct{})}
}

func (g *gated) solve(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	if env.Rollout.Kind == record.Train && env.Rollout.Step == g.step {
		g.reached <- env.Rollout
		select {
		case <-g.open:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return calculate(ctx, task, env)
}

// patient lets agents wait at a gate long enough for a busy machine.
func patient(s spec.Spec) spec.Spec {
	s.Agent.Limits.Seconds, s.Agent.Limits.IdleSeconds = 600, 600
	return s
}

func TestARunResetWhileItRunsEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	agents := agent.Registry{"calculator": calculate}
	gates := map[string]*gated{"first": newGated(2), "last": newGated(2)}
	for name, g := range gates {
		agents[name] = g.solve
	}
	st := startWith(ctx, t, t.TempDir(), agents)
	defer func() { require.NoError(t, st.Close()) }()
	s := patient(deciding(1, 2))
	want := mustTrain(ctx, t, st, "undisturbed", s)
	for kind, g := range gates {
		s.Agent.Func = kind
		name := "reset-" + kind
		_ = inBackground(ctx, st, name, s)
		reached := <-g.reached
		ids, _ := points(eventsOf(ctx, t, st.Client, name))
		at := ids[0]
		if kind == "last" {
			at = ids[len(ids)-1]
			// A child is reset by itself too: it stays its parent's child.
			_, err := reset(ctx, st.Client, fmt.Sprintf("%s/train-2/%d", name, reached.Task), "", 4)
			require.NoError(t, err)
		}
		run, err := reset(ctx, st.Client, name, firstExecution(ctx, t, st.Client, name), at)
		require.NoError(t, err)
		close(g.open)
		var got workflows.TrainingResult
		require.NoError(t, st.Client.GetWorkflow(ctx, name, run).Get(ctx, &got), kind)
		require.Equal(t, want.Weights, got.Weights, "reset to the %s workflow task", kind)
		require.Equal(t, want.Promoted, got.Promoted)
		requireWhole(ctx, t, st, name)
	}
}
