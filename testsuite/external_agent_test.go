package testsuite_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// theirQueue is a queue that the user's own workers poll, which have no code of ours.
const theirQueue = "theirs"

// jobEnvironment holds the fields of the argument that the user's agent reads.
type jobEnvironment struct {
	Input   string `json:"input"`
	BaseURL string `json:"base_url"`
	APIKey  string `json:"api_key"`
	Model   string `json:"model"`
}

func theirActivity(ctx context.Context, b jobEnvironment) (string, error) {
	return calculator.Agent{Client: calculator.Connect(b.BaseURL, b.APIKey), Model: b.Model}.Solve(ctx, b.Input)
}

// theirWorkflow runs the user's agent in one of the user's activities. In the first
// attempt at task 1 it hangs.
func theirWorkflow(ctx workflow.Context, b jobEnvironment) (map[string]string, error) {
	if strings.HasSuffix(workflow.GetInfo(ctx).WorkflowExecution.ID, "/train-1/1/0/1") {
		return nil, workflow.Sleep(ctx, time.Hour)
	}
	var result string
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	err := workflow.ExecuteActivity(ctx, theirActivity, b).Get(ctx, &result)
	return map[string]string{"result": result}, err
}

// theirWorker starts a worker with the user's agents. It is stopped when the test ends.
func theirWorker(t *testing.T, c client.Client) {
	t.Helper()
	w := worker.New(c, theirQueue, worker.Options{})
	w.RegisterWorkflowWithOptions(theirWorkflow, workflow.RegisterOptions{Name: "TheirAgent"})
	w.RegisterActivity(theirActivity)
	w.RegisterActivityWithOptions(theirActivity, activity.RegisterOptions{Name: "their_agent"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

// tiny returns the spec of a run with one step and no evaluation.
func tiny(a spec.Agent) spec.Spec {
	s := small(1)
	s.Agent, s.Evaluation, s.Promotion = a, spec.Evaluation{}, spec.Promotion{}
	s.Tasks.Gate, s.Tasks.Test = "", ""
	s.Training.TasksPerStep, s.Training.SamplesPerTask = 2, 4
	return s.WithDefaults()
}

func externalAgentSpec(a spec.Temporal) spec.Spec {
	a.Queue = theirQueue
	return tiny(spec.Agent{Temporal: &a, Limits: spec.AgentLimits{Seconds: 10}})
}

// What is learned does not depend on where an agent runs.
func TestAgentsThatAreWorkflowsAndActivitiesTrainTheSameWeights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	want := mustTrain(ctx, t, st, "here-for-theirs", tiny(spec.Agent{Func: "calculator"}))
	theirWorker(t, st.Client)
	for name, a := range map[string]spec.Temporal{"their-workflow": {Workflow: "TheirAgent"}, "their-activity": {Activity: "their_agent"}} {
		got := mustTrain(ctx, t, st, name, externalAgentSpec(a))
		require.Equal(t, want.Weights, got.Weights, name)
	}
	lost, err := st.Store.Attempt(ctx, record.Address{RolloutID: record.RolloutID{Run: "their-workflow", Kind: record.Train, Step: 1, Task: 1}, Attempt: 1})
	require.NoError(t, err)
	require.Equal(t, record.InfraFault, lost.Outcome)
	require.Contains(t, lost.Error, "no result after 10s")
	lost.Address.Attempt = 2
	again, err := st.Store.Attempt(ctx, lost.Address)
	require.NoError(t, err)
	require.NotEqual(t, record.OutcomeRunning, again.Outcome)
}

func TestRolloutsWaitForTheWorkersOfAnAgent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := start(ctx, t, t.TempDir())
	defer func() { require.NoError(t, st.Close()) }()
	ended := inBackground(ctx, st, "patient", externalAgentSpec(spec.Temporal{Workflow: "TheirAgent"}))
	require.Eventually(t, func() bool {
		return strings.Contains(blockedBy(ctx, st, "patient/train-1/0"), `no worker polls the task queue \"theirs\"`)
	}, 2*time.Minute, 50*time.Millisecond)
	_, err := st.Store.CurrentAttempt(ctx, record.RolloutID{Run: "patient", Kind: record.Train, Step: 1})
	require.ErrorIs(t, err, record.ErrNotFound)
	theirWorker(t, st.Client)
	require.NoError(t, <-ended)
}

// A worker of the agent that can't go on says nothing about the agent: the run waits and
// says why, until another worker can.
func TestWorkersThatCanNotGoOnAreNoFailureOfTheirAgent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	for name, c := range map[string]struct {
		agent    spec.Temporal
		register func(worker.Worker)
		options  client.Options
		says     string
	}{
		"panic": {spec.Temporal{Workflow: "Solver"}, func(w worker.Worker) {
			w.RegisterWorkflowWithOptions(func(workflow.Context, jobEnvironment) (string, error) { panic("no such key") }, workflow.RegisterOptions{Name: "Solver"})
		}, client.Options{}, "no such key"},
		"unknown-workflow": {spec.Temporal{Workflow: "Solver"}, func(w worker.Worker) { w.RegisterWorkflow(theirWorkflow) }, client.Options{}, "Solver"},
		"unknown-activity": {spec.Temporal{Activity: "solver"}, func(w worker.Worker) { w.RegisterActivity(theirActivity) }, client.Options{}, "activityType=solver"},
		"compressed": {spec.Temporal{Activity: "solver"}, func(w worker.Worker) {
			w.RegisterActivityWithOptions(func(context.Context, jobEnvironment) (string, error) { return strings.Repeat("42", 500), nil }, activity.RegisterOptions{Name: "solver"})
		}, client.Options{DataConverter: converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), converter.NewZlibCodec(converter.ZlibCodecOptions{}))}, "binary/zlib"},
	} {
		t.Run(name, func(t *testing.T) {
			queue := "queue-" + name
			c.agent.Queue = queue
			theirs, err := client.NewClientFromExisting(st.Client, c.options)
			require.NoError(t, err)
			w := worker.New(theirs, queue, worker.Options{DisableRegistrationAliasing: true})
			c.register(w)
			require.NoError(t, w.Start())
			s := tiny(spec.Agent{Temporal: &c.agent, Limits: spec.AgentLimits{Seconds: 2}})
			s.Training.TasksPerStep, s.Training.SamplesPerTask = 1, 2
			ended := inBackground(ctx, st, name, s)
			require.Eventually(t, func() bool { return strings.Contains(blockedBy(ctx, st, name+"/train-1/0"), c.says) }, time.Minute, 50*time.Millisecond)
			w.Stop()
			good := worker.New(st.Client, queue, worker.Options{})
			good.RegisterWorkflowWithOptions(theirWorkflow, workflow.RegisterOptions{Name: "Solver"})
			good.RegisterActivity(theirActivity)
			good.RegisterActivityWithOptions(theirActivity, activity.RegisterOptions{Name: "solver"})
			require.NoError(t, good.Start())
			defer good.Stop()
			require.NoError(t, <-ended)
			a, err := st.Store.Attempt(ctx, record.Address{RolloutID: record.RolloutID{Run: name, Kind: record.Train, Step: 1}, Attempt: 1})
			require.NoError(t, err)
			require.Equal(t, record.InfraFault, a.Outcome)
			require.Contains(t, a.Error, c.says)
		})
	}
}

// blockedBy returns the last failures of a workflow's pending activities.
func blockedBy(ctx context.Context, st *stack.Stack, id string) string {
	d, err := st.Client.DescribeWorkflowExecution(ctx, id, "")
	if err != nil {
		return ""
	}
	var all strings.Builder
	for _, a := range d.PendingActivities {
		all.WriteString(a.GetLastFailure().String())
	}
	return all.String()
}

// The worker calls the service, and the service calls the model through the worker's
// forwarder.
func TestAgentBehindHTTPTrainsTheSameWeights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := sharedStack(t)
	want := mustTrain(ctx, t, st, "here-for-http", tiny(spec.Agent{Func: "calculator"}))
	var asked atomic.Int64
	service := spec.Service{URL: theirService(t, &asked), Headers: map[string]string{"X-Team": "ours"}}
	got := mustTrain(ctx, t, st, "behind-http", tiny(spec.Agent{Service: &service}))
	require.Equal(t, want.Weights, got.Weights)
	require.Greater(t, asked.Load(), int64(8), "each third request was answered by the proxy, and asked again")
}
