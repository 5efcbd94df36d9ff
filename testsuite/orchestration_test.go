package testsuite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// The shape that BenchmarkOrchestration runs.
const (
	benchGroups  = 64
	benchSamples = 8
	benchQueue   = "bench"

	benchActivities = "bench-activities"
)

// BenchmarkOrchestration measures the cost of a rollout without its agent and its model.
// It runs 64 groups of 8 whose agent answers at once and calls no model. It compares them
// with a plain Temporal loop of the same shape on the same server. Both run one after the
// other in the same benchmark.
func BenchmarkOrchestration(b *testing.B) {
	ctx := b.Context()
	st := startWith(ctx, b, b.TempDir(), agent.Registry{"idle": func(context.Context, agent.Task, agent.Env) (string, error) { return "0", nil }})
	defer func() { require.NoError(b, st.Close()) }()
	s := small(1)
	s.Agent.Func, s.Model.WarmStart = "idle", nil
	input, err := json.Marshal(s)
	require.NoError(b, err)
	prepared, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "bench", TaskQueue: workflows.QueueTraining},
		"TryWorkflow", workflows.TryInput{Training: workflows.TrainingInput{Spec: input}})
	require.NoError(b, err)
	require.NoError(b, prepared.Get(ctx, nil))

	// The same shape: workflows on one queue, activities on another.
	story := worker.New(st.Client, benchQueue, worker.Options{})
	story.RegisterWorkflow(fan)
	story.RegisterWorkflow(bareGroup)
	require.NoError(b, story.Start())
	defer story.Stop()
	hands := worker.New(st.Client, benchActivities, worker.Options{DisableWorkflowWorker: true, MaxConcurrentActivityExecutionSize: 64})
	hands.RegisterActivity(nothing)
	require.NoError(b, hands.Start())
	defer hands.Stop()

	var ours, bare time.Duration
	for n := 0; b.Loop(); n++ {
		ours += runFan(ctx, b, st.Client, fmt.Sprintf("ours-%d", n), fanInput{Step: n, Agent: s.Agent, Grader: s.Grader})
		bare += runFan(ctx, b, st.Client, fmt.Sprintf("bare-%d", n), fanInput{Bare: true})
	}
	rollouts := float64(b.N * benchGroups * benchSamples)
	b.ReportMetric(rollouts/ours.Seconds(), "rollouts/s")
	b.ReportMetric(rollouts/bare.Seconds(), "bare/s")
	b.ReportMetric(100*bare.Seconds()/ours.Seconds(), "%ofbare")
}

func runFan(ctx context.Context, b *testing.B, c client.Client, id string, in fanInput) time.Duration {
	b.Helper()
	began := time.Now()
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: benchQueue}, fan, in)
	require.NoError(b, err)
	require.NoError(b, run.Get(ctx, nil))
	return time.Since(began)
}

// fanInput says which children fan starts.
type fanInput struct {
	Bare   bool
	Step   int
	Agent  spec.Agent
	Grader spec.Grader
}

// fan starts the groups as children and waits for them, as a step does.
func fan(ctx workflow.Context, in fanInput) error {
	var children []workflow.ChildWorkflowFuture
	for g := range benchGroups {
		if in.Bare {
			children = append(children, workflow.ExecuteChildWorkflow(ctx, bareGroup))
			continue
		}
		child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{TaskQueue: workflows.QueueTraining})
		children = append(children, workflow.ExecuteChildWorkflow(child, "RolloutWorkflow", workflows.RolloutInput{
			Run: "bench", Kind: record.Try, Step: in.Step, Task: g, Index: g, Policy: "main", Samples: benchSamples, Agent: in.Agent, Grader: in.Grader,
		}))
	}
	for _, c := range children {
		if err := c.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// bareGroup runs as many activities as a group has samples; they do nothing.
func bareGroup(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: benchActivities, StartToCloseTimeout: time.Minute})
	var samples []workflow.Future
	for range benchSamples {
		samples = append(samples, workflow.ExecuteActivity(ctx, nothing))
	}
	for _, f := range samples {
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func nothing(context.Context) error { return nil }
