package testsuite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// ordered runs the calculator and notes the runs of its attempts in their order. The first
// attempt of each test waits until release is closed.
type ordered struct {
	mu      sync.Mutex
	runs    []string
	release chan struct{}
}

func (o *ordered) begin() (release chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.runs, o.release = nil, make(chan struct{})
	return o.release
}

func (o *ordered) solve(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	o.mu.Lock()
	o.runs = append(o.runs, env.Rollout.Run)
	release := o.release
	o.mu.Unlock()
	select {
	case <-release:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	return calculate(ctx, task, env)
}

// before returns how many attempts of the other run began before the last one of run.
func (o *ordered) before(run string) (others int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, name := range o.runs {
		if name == run {
			others = n
		} else {
			n++
		}
	}
	return others
}

// A large run has 64 attempts waiting when a small one comes with 16. One agent runs at once.
func TestRunsShareAQueueByWeightAndPriority(t *testing.T) {
	skipShort(t, "Temporal's server shares the queue, and runs without the race detector")
	t.Parallel()
	ctx := t.Context()
	o := &ordered{}
	st, err := stack.Start(ctx, stack.Options{Dir: t.TempDir(), Agents: agent.Registry{"ordered": o.solve}, Concurrency: 1, Log: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()

	one := func(tasks int, scheduling spec.Scheduling) spec.Spec {
		return spec.Spec{
			Seed: 7, Agent: spec.Agent{Func: "ordered"}, Tasks: spec.Tasks{Train: "arithmetic:train:64"}, Grader: spec.Grader{Type: "exact"},
			Training: spec.Training{Steps: 1, TasksPerStep: tasks, SamplesPerTask: 4}, Scheduling: scheduling,
		}.WithDefaults()
	}
	for _, c := range []struct {
		name      string
		small     spec.Scheduling
		low, high int // attempts of the large run before the small one's last
	}{
		{"equal", spec.Scheduling{}, 8, 32},
		{"weight", spec.Scheduling{Weight: 8}, 1, 12},
		{"first", spec.Scheduling{Priority: 1}, 0, 6},
		{"last", spec.Scheduling{Priority: 5}, 60, 64},
	} {
		release := o.begin() // one case at a time, since each looks at the order of attempts
		var both errgroup.Group
		both.Go(func() error { _, err := train(ctx, st, "large-"+c.name, one(16, spec.Scheduling{})); return err })
		awaitBacklog(ctx, t, st, "large-"+c.name, 63)
		both.Go(func() error { _, err := train(ctx, st, "small-"+c.name, one(4, c.small)); return err })
		awaitBacklog(ctx, t, st, "small-"+c.name, 16)
		close(release)
		require.NoError(t, both.Wait())
		got := o.before("small-" + c.name)
		require.GreaterOrEqual(t, got, c.low, c.name)
		require.LessOrEqual(t, got, c.high, c.name)
	}

	release := o.begin()
	var set errgroup.Group
	set.Go(func() error { _, err := train(ctx, st, "set", one(1, spec.Scheduling{Priority: 2})); return err })
	awaitBacklog(ctx, t, st, "set", 3)
	handle, err := st.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: "set", UpdateName: workflows.UpdateSet, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{workflows.SetInput{By: "ada", Values: map[string]float64{spec.KeyWeight: 5}}},
	})
	require.NoError(t, err)
	require.NoError(t, handle.Get(ctx, nil))
	close(release)
	require.NoError(t, set.Wait())
	scheduled := map[string]*common.Priority{}
	for _, e := range eventsOf(ctx, t, st.Client, "set") {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			scheduled[a.GetActivityType().GetName()] = a.GetPriority()
		}
		if a := e.GetStartChildWorkflowExecutionInitiatedEventAttributes(); a != nil {
			scheduled[a.GetWorkflowType().GetName()] = a.GetPriority()
		}
	}
	require.Equal(t, "set", scheduled["RolloutWorkflow"].GetFairnessKey())
	require.Zero(t, scheduled["RolloutWorkflow"].GetFairnessWeight())
	require.InDelta(t, 5, scheduled["TrainStep"].GetFairnessWeight(), 0, "it counts at once")
	require.EqualValues(t, 2, scheduled["TrainStep"].GetPriorityKey())
}

// awaitBacklog waits until so many activities of a run's first rollouts wait for a worker.
func awaitBacklog(ctx context.Context, t *testing.T, st *stack.Stack, run string, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		waiting := 0
		for task := range 16 {
			d, err := st.Client.DescribeWorkflowExecution(ctx, fmt.Sprintf("%s/%s-1/%d", run, record.Train, task), "")
			if err != nil {
				continue
			}
			for _, a := range d.GetPendingActivities() {
				if a.GetState() == enums.PENDING_ACTIVITY_STATE_SCHEDULED {
					waiting++
				}
			}
		}
		return waiting >= want
	}, time.Minute, 50*time.Millisecond)
}
