package testsuite_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// temporalCLI returns a function that runs Temporal's own command line against a stack.
// Tests that use it are skipped where it is not installed. tools/temporal builds it.
func temporalCLI(t *testing.T, st *stack.Stack) func(args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("temporal")
	if named := os.Getenv("FULGURITE_TEST_TEMPORAL"); named != "" {
		path, err = named, nil
	}
	if err != nil {
		t.Skip("no temporal on the PATH: tools/temporal/build FILE")
	}
	return func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), path, append(args, "--address", st.TemporalAddress(), "--disable-config-file")...).CombinedOutput()
		return string(out), err
	}
}

// is waits until a run has a status both in the store and in Temporal.
func is(ctx context.Context, t *testing.T, st *stack.Stack, name string, want record.Status) record.Run {
	t.Helper()
	var run, now record.Run
	require.Eventually(t, func() bool {
		var err error
		if run, err = st.Store.Run(ctx, name); err != nil {
			return false
		}
		now, err = runstate.Of(ctx, st.Client, run)
		return err == nil && now.Status == want && run.Status == want
	}, time.Minute, 20*time.Millisecond, "%s is to be %s", name, want)
	return run
}

func TestTemporalsButtonsWorkOrAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	agents, gates := agent.Registry{"calculator": calculate}, map[string]*gated{}
	runs := []string{"pausing", "resetting", "cancelling", "batching", "deleting"}
	for _, name := range runs {
		gates[name] = newGated(2)
		agents[name] = gates[name].solve
	}
	st, err := stack.Start(ctx, stack.Options{Dir: t.TempDir(), Agents: agents, Log: zap.NewNop(), Reconcile: 50 * time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	temporal := temporalCLI(t, st)
	s := patient(deciding(0, 2))
	want := mustTrain(ctx, t, st, "undisturbed", s)
	ends := func(name string) {
		t.Helper()
		var got workflows.TrainingResult
		require.NoError(t, st.Client.GetWorkflow(ctx, name, "").Get(ctx, &got), name)
		require.Equal(t, want.Weights, got.Weights, name)
		requireWhole(ctx, t, st, name)
	}
	begin := func(name string) record.RolloutID {
		s.Agent.Func = name
		_ = inBackground(ctx, st, name, s)
		return <-gates[name].reached
	}

	// Activities, signals and updates.
	child := fmt.Sprintf("pausing/train-2/%d", begin("pausing").Task)
	d, err := st.Client.DescribeWorkflowExecution(ctx, child, "")
	require.NoError(t, err)
	activity := d.PendingActivities[0].ActivityId
	for _, verb := range []string{"pause", "unpause", "reset"} {
		out, err := temporal("activity", verb, "--workflow-id", child, "--activity-id", activity)
		require.NoError(t, err, out)
	}
	out, err := temporal("workflow", "signal", "--workflow-id", "pausing", "--name", "nobody-knows-it", "--input", `{"a": 1}`)
	require.NoError(t, err, out)
	for name, input := range map[string]string{"nobody-knows-it": `{}`, "set": `"nonsense"`, "approve": `[1, 2]`, "pause": `7`} {
		out, err := temporal("workflow", "update", "execute", "--workflow-id", "pausing", "--name", name, "--input", input)
		require.Error(t, err, "update %s with %s: %s", name, input, out)
	}
	is(ctx, t, st, "pausing", record.Running)
	close(gates["pausing"].open)
	ends("pausing")

	// Reset, of a run that was terminated and of one that has completed.
	begin("resetting")
	out, err = temporal("workflow", "terminate", "--workflow-id", "resetting", "--reason", "a test")
	require.NoError(t, err, out)
	require.Contains(t, is(ctx, t, st, "resetting", record.Terminated).Failure().Error, ": a test")
	close(gates["resetting"].open)
	for _, kind := range []string{"LastWorkflowTask", "FirstWorkflowTask", "LastWorkflowTask"} {
		out, err := temporal("workflow", "reset", "--workflow-id", "resetting", "--type", kind, "--reason", "a test")
		require.NoError(t, err, out)
		is(ctx, t, st, "resetting", record.Completed)
		ends("resetting")
	}

	// Cancel, batches, deletion.
	begin("cancelling")
	out, err = temporal("workflow", "cancel", "--workflow-id", "cancelling")
	require.NoError(t, err, out)
	is(ctx, t, st, "cancelling", record.Cancelled)
	close(gates["cancelling"].open)
	_, err = retry(ctx, st, "cancelling")
	require.NoError(t, err)
	ends("cancelling")
	begin("batching")
	out, err = temporal("workflow", "terminate", "--query", "WorkflowId = 'batching'", "--reason", "all of them", "--yes")
	require.NoError(t, err, out)
	require.Contains(t, is(ctx, t, st, "batching", record.Terminated).Failure().Error, ": all of them")
	begin("deleting")
	out, err = temporal("workflow", "delete", "--workflow-id", "deleting")
	require.NoError(t, err, out)
	is(ctx, t, st, "deleting", record.Deleted)
	out, err = temporal("workflow", "delete", "--workflow-id", "undisturbed")
	require.NoError(t, err, out)
	require.Eventually(t, func() bool {
		_, err := st.Client.DescribeWorkflowExecution(ctx, "undisturbed", "")
		return err != nil
	}, time.Minute, 20*time.Millisecond)
	is(ctx, t, st, "undisturbed", record.Completed)
	_, err = retry(ctx, st, "deleting")
	require.ErrorIs(t, err, runstate.ErrNotRetried)
	close(gates["batching"].open)
	close(gates["deleting"].open)
}
