package testsuite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// calculate is the example's agent, in the form that a worker registers.
func calculate(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	return calculator.Agent{Client: calculator.Connect(env.BaseURL, env.Key), Model: env.Model}.Solve(ctx, task.Input)
}

// small returns the spec of a run that takes seconds: the tiny model, a warm start too
// short to be good, and a few steps.
func small(steps int) spec.Spec {
	return spec.Spec{
		Seed:       7,
		Model:      spec.Model{WarmStart: &spec.WarmStart{Demonstrations: "arithmetic", Updates: 150, Batch: 32}},
		Agent:      spec.Agent{Func: "calculator"},
		Tasks:      spec.Tasks{Train: "arithmetic:train:64", Gate: "arithmetic:gate:16", Test: "arithmetic:test:16"},
		Grader:     spec.Grader{Type: "exact"},
		Training:   spec.Training{Steps: steps, TasksPerStep: 4, SamplesPerTask: 4},
		Evaluation: spec.Evaluation{Every: 2},
	}.WithDefaults()
}

func start(ctx context.Context, t testing.TB, dir string) *stack.Stack {
	t.Helper()
	return startWith(ctx, t, dir, agent.Registry{"calculator": calculate})
}

func startWith(ctx context.Context, t testing.TB, dir string, agents agent.Registry) *stack.Stack {
	t.Helper()
	st, err := stack.Start(ctx, stack.Options{Dir: dir, Agents: agents, Log: zap.NewNop(), Reconcile: 100 * time.Millisecond})
	require.NoError(t, err)
	return st
}

// shared is the stack of tests that need none of their own, because they neither stop it
// nor look at more than their own runs. Their runs have names that no other test uses.
var shared struct {
	sync.Mutex
	dir   string
	stack *stack.Stack
}

// sharedStack returns the shared stack. The first call starts it.
func sharedStack(t *testing.T) *stack.Stack {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.stack == nil {
		require.NoError(t, startSharedStack())
	}
	return shared.stack
}

// startSharedStack starts the shared stack in a folder of its own, since it outlives the
// test that asks first.
func startSharedStack() (err error) {
	if shared.dir == "" { // else the last start failed
		if shared.dir, err = os.MkdirTemp("", "fulgurite-testsuite-"); err != nil {
			return err
		}
	}
	shared.stack, err = stack.Start(context.Background(), stack.Options{Dir: shared.dir, Agents: agent.Registry{"calculator": calculate, "sorter": sortWord, "asker": sortByPrompt, "pair": agree}, Log: zap.NewNop(), Reconcile: 100 * time.Millisecond})
	return err
}

func closeSharedStack() error {
	if shared.dir == "" {
		return nil
	}
	var err error
	if shared.stack != nil {
		err = shared.stack.Close()
	}
	return errors.Join(err, os.RemoveAll(shared.dir))
}

// train runs s under name to its end.
func train(ctx context.Context, st *stack.Stack, name string, s spec.Spec) (workflows.TrainingResult, error) {
	var out workflows.TrainingResult
	data, err := json.Marshal(s)
	if err != nil {
		return out, err
	}
	run, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: name, TaskQueue: workflows.QueueTraining, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, "TrainingWorkflow", workflows.TrainingInput{Spec: data})
	if err != nil {
		return out, err
	}
	return out, run.Get(ctx, &out)
}

func TestTwoStepsRunThroughEverythingReal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	s := small(2)
	s.Model.WarmStart = nil // random weights
	result, err := train(ctx, st, "two-steps", s)
	require.NoError(t, err)
	require.Equal(t, 2, result.Steps)

	versions, err := st.Store.Versions(ctx, "two-steps", "main")
	require.NoError(t, err)
	require.Len(t, versions, 3)
	for i, v := range versions {
		require.Equal(t, i, v.Number)
		require.Equal(t, i-1, v.Parent)
	}
	require.Equal(t, result.Weights, versions[2].Weights)
	// Random weights solve nothing, so no group has anything to learn from.
	require.Equal(t, versions[0].Weights, versions[1].Weights)

	attempts, err := st.Store.Attempts(ctx, "two-steps", record.Train, 1)
	require.NoError(t, err)
	require.Len(t, attempts, 16)
	for _, a := range attempts {
		require.NotEqual(t, record.OutcomeRunning, a.Outcome)
		calls, err := st.Store.Calls(ctx, a.Address)
		require.NoError(t, err)
		require.NotEmpty(t, calls)
		require.Equal(t, versions[0].Weights, calls[0].Weights, "step 1 samples from version 0")
	}
	run, err := st.Store.Run(ctx, "two-steps")
	require.NoError(t, err)
	require.Equal(t, record.Completed, run.Status)
}

// The budget of a run with Temporal: only ids and numbers pass through it.
const (
	largestPayload = 8 << 10 // bytes; the server warns at 512 KiB
	eventsPerStep  = 120     // of TrainingWorkflow, at 4 tasks a step
)

func TestOnlyIDsAndNumbersPassThroughTemporal(t *testing.T) {
	t.Parallel()
	skipShort(t, "counts events")
	ctx := t.Context()
	st := sharedStack(t)
	s := small(4)
	_, err := train(ctx, st, "budget", s)
	require.NoError(t, err)

	events := eventsOf(ctx, t, st.Client, "budget")
	require.Less(t, len(events), s.Training.Steps*eventsPerStep)
	t.Logf("TrainingWorkflow: %d events for %d steps", len(events), s.Training.Steps)
	for _, id := range []string{"budget", "budget/train-1/0", "budget/gate-2", "budget/test-0"} {
		for _, e := range eventsOf(ctx, t, st.Client, id) {
			require.Less(t, proto.Size(e), largestPayload, "event %d of %s", e.EventId, id)
		}
	}
}

func eventsOf(ctx context.Context, t *testing.T, c client.Client, id string) []*history.HistoryEvent {
	t.Helper()
	var out []*history.HistoryEvent
	for it := c.GetWorkflowHistory(ctx, id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		e, err := it.Next()
		require.NoError(t, err)
		out = append(out, e)
	}
	require.NotEmpty(t, out)
	return out
}

// victimVariable names the state directory of a process that trains until it is
// killed.
const victimVariable = "FULGURITE_TEST_VICTIM"

// kindVariable says which training that is.
const kindVariable = "FULGURITE_TEST_KIND"

func victimSpec(kind string) spec.Spec {
	switch kind {
	case "lag":
		return lagging(2, 6)
	case "sampled":
		return sampled(1, 6)
	case "band":
		return choosing(spec.CurriculumBand, 1, 6)
	case "policies":
		return paired(1, 6)
	case "slow":
		s := small(2)
		s.Agent.Func = "slow"
		return s
	}
	return small(6)
}

// slow is an agent that takes long enough to be killed meanwhile.
func slow(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(300 * time.Millisecond):
		return calculate(ctx, task, env)
	}
}

// victim trains in a process of its own.
func victim(dir string) int {
	ctx := context.Background()
	st, err := stack.Start(ctx, stack.Options{Dir: dir, Agents: agent.Registry{"calculator": calculate, "slow": slow, "pair": agree}, Log: zap.NewNop()})
	switch kind := os.Getenv(kindVariable); {
	case err != nil:
	case kind == "retry":
		_, err = retry(ctx, st, "run")
	default:
		_, err = train(ctx, st, "run", victimSpec(kind))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestARunKilledAnyNumberOfTimesEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	// A plain run and an adapter's are killed by testsuite/chaos (.ci/chaos).
	for _, kind := range []string{"lag", "sampled", "band", "policies"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind != "sampled" && kind != "policies" {
				skipKind(t, "the kind sampled shows it")
			}
			killThreeTimes(t, kind)
		})
	}
}

func killThreeTimes(t *testing.T, kind string) {
	t.Helper()
	ctx := t.Context()
	want := mustTrain(ctx, t, sharedStack(t), "never-killed-"+kind, victimSpec(kind))

	dir := t.TempDir()
	for kill := range 3 {
		process := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
		process.Env = append(os.Environ(), victimVariable+"="+dir, kindVariable+"="+kind)
		process.Stderr = os.Stderr
		require.NoError(t, process.Start())
		awaitProgress(ctx, t, dir, 1+2*kill)
		require.NoError(t, process.Process.Signal(syscall.SIGKILL))
		require.Error(t, process.Wait())
	}
	st := startWith(ctx, t, dir, agent.Registry{"calculator": calculate, "pair": agree})
	defer func() { require.NoError(t, st.Close()) }()
	got, err := train(ctx, st, "run", victimSpec(kind))
	require.NoError(t, err)
	require.Equal(t, want.Weights, got.Weights, "killed three times, and under another name")
	require.Equal(t, want.Promoted, got.Promoted)
	require.Equal(t, want.After.Mean, got.After.Mean)
}

// awaitProgress waits until the victim has trained a version, by looking at the
// store it writes.
func awaitProgress(ctx context.Context, t *testing.T, dir string, version int) {
	t.Helper()
	require.Eventually(t, func() bool {
		db, err := openStore(ctx, dir)
		if err != nil {
			return false
		}
		defer db.Close()
		versions, err := db.Versions(ctx, "run", "main")
		return err == nil && len(versions) > version
	}, 2*time.Minute, 20*time.Millisecond)
}
