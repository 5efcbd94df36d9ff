package testsuite_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// tryLargest makes TestTheLargestSpecsRun run the shapes of the limits themselves.
var tryLargest = flag.Bool("largest", false, "run one step of the largest specs that are accepted: 5,000 groups took 8 minutes on two busy cores, 50,000 rollouts take longer")

// lazy makes one model call in a whole step, and otherwise answers at once: what these
// tests measure is Temporal.
func lazy(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	if env.Rollout.Task == 0 && env.Rollout.Sample == 0 {
		return calculate(ctx, task, env)
	}
	return "0", nil
}

// wide returns the spec of one step with the given number of groups.
func wide(groups, samples int) spec.Spec {
	s := tiny(spec.Agent{Func: "lazy"})
	s.Model.WarmStart = nil
	s.Training.TasksPerStep, s.Training.SamplesPerTask = groups, samples
	return s.WithDefaults()
}

// Specs are limited so that no accepted spec reaches a limit of Temporal in the middle of
// a step.
func TestTheLargestSpecsRun(t *testing.T) {
	t.Parallel()
	skipKind(t, "large, not different")
	shapes := map[string]spec.Spec{"more samples than the window": wide(2, 300)}
	if *tryLargest {
		shapes = map[string]spec.Spec{"samples": wide(50, 1000), "groups": wide(5000, 2)}
	}
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			st := startWith(ctx, t, t.TempDir(), agent.Registry{"calculator": calculate, "lazy": lazy})
			defer func() { require.NoError(t, st.Close()) }()
			began := time.Now()
			mustTrain(ctx, t, st, "wide", s)
			t.Logf("%d groups of %d in %s", s.Training.TasksPerStep, s.Training.SamplesPerTask, time.Since(began).Round(time.Second))
			measure(ctx, t, st, "wide")
			measure(ctx, t, st, "wide/train-1/1")
			attempts, err := st.Store.Attempts(ctx, "wide", record.Train, 1)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(attempts), s.Training.TasksPerStep*s.Training.SamplesPerTask)
		})
	}
}

// The server's limits.
const (
	maxEvents  = 51_200
	maxPending = 2_000
	maxPayload = 2 << 20 // bytes
)

// measure checks that a history is within the limits of the server, and logs how close it
// is to them.
func measure(ctx context.Context, t *testing.T, st *stack.Stack, id string) {
	t.Helper()
	events := eventsOf(ctx, t, st.Client, id)
	largest, pending, most := 0, 0, 0
	for _, e := range events {
		largest = max(largest, proto.Size(e))
		switch e.EventType {
		case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, enums.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
			pending++
		case enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, enums.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED:
			pending--
		}
		most = max(most, pending)
	}
	t.Logf("%s: %d events, %d pending at most, the largest event has %d bytes", id, len(events), most, largest)
	require.Less(t, len(events), maxEvents)
	require.Less(t, most, maxPending)
	require.Less(t, largest, maxPayload)
}
