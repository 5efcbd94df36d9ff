package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// externalAgent are the activities before and after an external agent: each attempt begins
// with the next number, and ends as outcome says.
type externalAgent struct {
	fakeActivities
	begun   int
	begins  []activities.BeginAttemptInput
	ends    []activities.EndAttemptInput
	outcome func(activities.EndAttemptInput) activities.EndAttemptResult
}

func (p *externalAgent) environment(registered ...func(*testsuite.TestWorkflowEnvironment)) *testsuite.TestWorkflowEnvironment {
	env := quiet().NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	for _, register := range registered {
		register(env)
	}
	env.RegisterWorkflow(workflows.RolloutWorkflow)
	var r *activities.Runner
	env.OnActivity(r.BeginAttempt, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.BeginAttemptInput) (activities.BeginAttemptResult, error) {
		var out activities.BeginAttemptResult
		p.locked(func() {
			p.begins = append(p.begins, in)
			p.begun++
			out.Attempt = p.begun
			out.Brief = agent.Invocation{Task: agent.Task{ID: "t", Input: "6*7"}, Rollout: in.Rollout.String(), BaseURL: "http://w/r/v1", APIKey: "key"}
		})
		return out, nil
	})
	env.OnActivity(r.EndAttempt, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.EndAttemptInput) (activities.EndAttemptResult, error) {
		p.locked(func() { p.ends = append(p.ends, in) })
		if p.outcome != nil {
			return p.outcome(in), nil
		}
		return counts(in), nil
	})
	env.OnActivity(r.GradeRollout, mock.Anything, mock.Anything).Return(activities.GradeRolloutResult{Reward: 0.25}, nil)
	return env
}

// counts returns the result of an attempt that counts.
func counts(in activities.EndAttemptInput) activities.EndAttemptResult {
	one := 1.0
	return activities.EndAttemptResult{RunAgentResult: activities.RunAgentResult{Attempt: in.Address.Attempt, Outcome: record.OutcomeCompleted, Reward: &one}}
}

func group(t spec.Temporal) workflows.RolloutInput {
	return workflows.RolloutInput{
		Run: "run", Kind: record.Train, Step: 1, Task: 3, Index: 5, Policy: "main", Samples: 1,
		Agent: spec.Agent{Temporal: &t, Queue: "rollout-cpu", Limits: spec.AgentLimits{Seconds: 60, IdleSeconds: 5}},
	}
}

func externalWorkflow() workflows.RolloutInput {
	return group(spec.Temporal{Workflow: "MyAgent", Queue: "theirs"})
}

func TestAnAgentMayBeSomebodysWorkflow(t *testing.T) {
	t.Parallel()
	var p externalAgent
	env := p.environment()
	var info *workflow.Info
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, environment map[string]any) (map[string]any, error) {
		info = workflow.GetInfo(ctx)
		return map[string]any{"result": environment["input"].(string) + "=42", "reward": 0.5}, nil
	}, workflow.RegisterOptions{Name: "MyAgent"})
	env.ExecuteWorkflow(workflows.RolloutWorkflow, externalWorkflow())
	var out workflows.RolloutResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, []int{1}, out.Group.Attempts)
	require.Equal(t, []float64{1}, out.Group.Rewards)
	require.Equal(t, "run/train-1/3/0/1", info.WorkflowExecution.ID)
	require.Equal(t, "theirs", info.TaskQueueName)
	require.Equal(t, time.Minute, info.WorkflowExecutionTimeout)
	require.Len(t, p.ends, 1)
	end := p.ends[0]
	require.JSONEq(t, `{"result":"6*7=42","reward":0.5}`, end.Reply)
	end.Reply = ""
	require.Equal(t, activities.EndAttemptInput{
		Address: record.Address{RolloutID: record.RolloutID{Run: "run", Kind: record.Train, Step: 1, Task: 3}, Attempt: 1},
		Index:   5, BaseURL: "http://w/r/v1", Key: "key", Workflow: "run/train-1/3/0/1",
	}, end)
}

func TestAnAgentMayBeSomebodysActivity(t *testing.T) {
	t.Parallel()
	var p externalAgent
	var info activity.Info
	tries := 0
	env := p.environment(func(env *testsuite.TestWorkflowEnvironment) {
		env.RegisterActivityWithOptions(func(ctx context.Context, _ map[string]any) (string, error) {
			info = activity.GetInfo(ctx)
			if tries++; tries == 1 {
				return "", errors.New("lost the thread")
			}
			return "42", nil
		}, activity.RegisterOptions{Name: "MyAgent"})
	})
	p.outcome = func(in activities.EndAttemptInput) activities.EndAttemptResult {
		if in.Address.Attempt == 1 {
			return activities.EndAttemptResult{Fault: "let us say"}
		}
		return counts(in)
	}
	env.ExecuteWorkflow(workflows.RolloutWorkflow, group(spec.Temporal{Activity: "MyAgent", Queue: "theirs"}))
	var out workflows.RolloutResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, []int{2}, out.Group.Attempts)
	require.Equal(t, 2, tries, "each try is an attempt of its own")
	require.Equal(t, time.Minute, info.StartToCloseTimeout)
	require.Equal(t, 5*time.Second, info.HeartbeatTimeout)
	require.Equal(t, "theirs", info.TaskQueue)
	require.Equal(t, activities.Raised, p.ends[0].Ending)
	require.Contains(t, p.ends[0].Message, "lost the thread")
	require.Empty(t, p.ends[1].Ending)
	require.JSONEq(t, `"42"`, p.ends[1].Reply)
	require.Empty(t, p.ends[0].Workflow)
}

func TestHowTheirWorkflowEndedIsTold(t *testing.T) {
	t.Parallel()
	slowly := workflow.ActivityOptions{StartToCloseTimeout: time.Second, ScheduleToStartTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}
	for name, c := range map[string]struct {
		agent  func(workflow.Context, json.RawMessage) (string, error)
		ending activities.Ending
		says   string
	}{
		"an error": {func(workflow.Context, json.RawMessage) (string, error) { return "", errors.New("lost the thread") }, activities.Raised, "lost the thread"},
		"an error that is no more to be tried": {func(workflow.Context, json.RawMessage) (string, error) {
			return "", temporal.NewNonRetryableApplicationError("not again", activities.ErrTypeInvalid, nil)
		}, activities.Raised, "not again"},
		"a timeout of its own": {func(workflow.Context, json.RawMessage) (string, error) {
			return "", temporal.NewApplicationErrorWithCause("gave up", "Mine", temporal.NewTimeoutError(0, nil))
		}, activities.Raised, "gave up"},
		"a panic": {func(workflow.Context, json.RawMessage) (string, error) { panic("a bug") }, activities.Panicked, "a bug"},
		"an activity whose worker is lost": {func(ctx workflow.Context, _ json.RawMessage) (string, error) {
			return "", workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, slowly), "Lost").Get(ctx, nil)
		}, activities.TimedOut, "no result"},
		"an activity whose worker shuts down": {func(ctx workflow.Context, _ json.RawMessage) (string, error) {
			return "", workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, slowly), "Fails", "WorkerShutdown", "Worker is shutting down and this activity did not complete in time").Get(ctx, nil)
		}, activities.Lost, "Worker is shutting down"},
		"an activity that no worker knows": {func(ctx workflow.Context, _ json.RawMessage) (string, error) {
			return "", workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, slowly), "Fails", "NotFoundError", "Activity function search for workflow w is not registered on this worker, available activities: solve").Get(ctx, nil)
		}, activities.Lost, "search"},
		"an activity that Go's worker does not know": {func(ctx workflow.Context, _ json.RawMessage) (string, error) {
			return "", workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, slowly), "Fails", "ActivityNotRegisteredError", "unable to find activityType=search. Supported types: [solve]").Get(ctx, nil)
		}, activities.Lost, "search"},
		"an activity that did not find something": {func(ctx workflow.Context, _ json.RawMessage) (string, error) {
			return "", workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, slowly), "Fails", "NotFoundError", "Error code: 404").Get(ctx, nil)
		}, activities.Raised, "404"},
		"an encoded failure": {func(workflow.Context, json.RawMessage) (string, error) {
			return "", temporal.NewApplicationError("Encoded failure", "Mine")
		}, activities.Unreadable, "encode_common_attributes"},
		"a cancel": {func(ctx workflow.Context, _ json.RawMessage) (string, error) { return "", temporal.NewCanceledError() }, activities.Cancelled, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p externalAgent
			env := p.environment(func(env *testsuite.TestWorkflowEnvironment) {
				env.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: "Lost"})
				env.RegisterActivityWithOptions(func(_ context.Context, kind, text string) error {
					return temporal.NewApplicationError(text, kind)
				}, activity.RegisterOptions{Name: "Fails"})
			})
			env.RegisterWorkflowWithOptions(c.agent, workflow.RegisterOptions{Name: "MyAgent"})
			env.OnActivity("Lost", mock.Anything).Return(temporal.NewTimeoutError(1, nil))
			env.ExecuteWorkflow(workflows.RolloutWorkflow, externalWorkflow())
			require.NoError(t, env.GetWorkflowError())
			require.Len(t, p.ends, 1)
			require.Equal(t, c.ending, p.ends[0].Ending, p.ends[0].Message)
			require.Contains(t, p.ends[0].Message, c.says)
		})
	}
}

func TestOnlyResultsInTemporalsOwnEncodingsAreRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		encoding, data string
		reply          string
		ending         activities.Ending
		says           string
	}{
		"JSON":       {encoding: "json/plain", data: `{"result":"42"}`, reply: `{"result":"42"}`},
		"protobuf":   {encoding: "json/protobuf", data: `{"result":"42"}`, reply: `{"result":"42"}`},
		"text":       {encoding: "binary/plain", data: "42", reply: "42"},
		"nothing":    {encoding: "binary/null"},
		"bytes":      {encoding: "binary/plain", data: "\xff\x00", ending: activities.Unreadable, says: "2 bytes that are no UTF-8"},
		"encryption": {encoding: "binary/encrypted", data: "aGVsbG8", ending: activities.Unreadable, says: `"binary/encrypted"`},
		"zlib":       {encoding: "binary/zlib", data: "x", ending: activities.Unreadable, says: `"binary/zlib"`},
		"messages":   {encoding: "binary/protobuf", data: "\n\x02", ending: activities.Unreadable, says: `"binary/protobuf"`},
		"no name":    {data: `"42"`, ending: activities.Unreadable, says: `""`},
		"too long":   {encoding: "json/plain", data: strings.Repeat("1", 1<<20+1), ending: activities.TooLong, says: "1048577 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p externalAgent
			env := p.environment()
			env.RegisterWorkflowWithOptions(func(workflow.Context, json.RawMessage) (converter.RawValue, error) {
				return converter.NewRawValue(&common.Payload{Metadata: map[string][]byte{"encoding": []byte(c.encoding)}, Data: []byte(c.data)}), nil
			}, workflow.RegisterOptions{Name: "MyAgent"})
			env.ExecuteWorkflow(workflows.RolloutWorkflow, externalWorkflow())
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, c.reply, p.ends[0].Reply)
			require.Equal(t, c.ending, p.ends[0].Ending)
			require.Contains(t, p.ends[0].Message, c.says)
		})
	}
}

func TestAnAttemptElsewhereIsMadeAgainWithEverLongerWaits(t *testing.T) {
	t.Parallel()
	var p externalAgent
	env := p.environment()
	env.RegisterWorkflowWithOptions(func(workflow.Context, json.RawMessage) (string, error) { return "42", nil }, workflow.RegisterOptions{Name: "MyAgent"})
	p.outcome = func(in activities.EndAttemptInput) activities.EndAttemptResult {
		if in.Address.Attempt < 12 {
			return activities.EndAttemptResult{Fault: "a fault"}
		}
		return counts(in)
	}
	env.ExecuteWorkflow(workflows.RolloutWorkflow, externalWorkflow())
	var out workflows.RolloutResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, []int{12}, out.Group.Attempts)
	require.Empty(t, p.begins[0].Fault)
	for i, wait := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 11: 5 * time.Minute} {
		require.Equal(t, "a fault", p.begins[i].Fault)
		require.Equal(t, i, p.begins[i].Faults)
		require.Equal(t, wait, p.begins[i].Wait)
	}
}

func TestACancelledRolloutEndsItsAttemptElsewhere(t *testing.T) {
	t.Parallel()
	var p externalAgent
	env := p.environment()
	cancelled := false
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ json.RawMessage) (string, error) {
		err := workflow.Sleep(ctx, time.Hour)
		cancelled = temporal.IsCanceledError(err)
		return "", err
	}, workflow.RegisterOptions{Name: "MyAgent"})
	env.RegisterDelayedCallback(env.CancelWorkflow, 10*time.Second)
	env.ExecuteWorkflow(workflows.RolloutWorkflow, externalWorkflow())
	require.Error(t, env.GetWorkflowError())
	require.True(t, cancelled, "the agent hears of it")
	require.Len(t, p.ends, 1)
	require.Equal(t, 1, p.begun, "and no other attempt begins")
}

func TestARolloutElsewhereThatHasEndedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	env := quiet().NewTestWorkflowEnvironment()
	var r *activities.Runner
	two := 2.0
	env.OnActivity(r.BeginAttempt, mock.Anything, mock.Anything).Return(activities.BeginAttemptResult{
		Ended: &activities.RunAgentResult{Attempt: 3, Outcome: record.OutcomeCompleted, Reward: &two},
	}, nil)
	env.ExecuteWorkflow(workflows.RolloutWorkflow, externalWorkflow())
	var out workflows.RolloutResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, []int{3}, out.Group.Attempts)
	require.Equal(t, []float64{2}, out.Group.Rewards)
}

func TestAGraderCommandDecidesOnAnAgentElsewhere(t *testing.T) {
	t.Parallel()
	var p externalAgent
	env := p.environment()
	env.RegisterWorkflowWithOptions(func(workflow.Context, json.RawMessage) (string, error) { return "42", nil }, workflow.RegisterOptions{Name: "MyAgent"})
	p.outcome = func(in activities.EndAttemptInput) activities.EndAttemptResult {
		out := counts(in)
		out.Reward = nil
		return out
	}
	env.ExecuteWorkflow(workflows.RolloutWorkflow, externalWorkflow())
	var out workflows.RolloutResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, []float64{0.25}, out.Group.Rewards)
}

// A grader decides about an attempt without reward, but not if the task was at fault
// before.
func TestATaskWhoseAttemptsCanNotBePreparedIsQuarantined(t *testing.T) {
	t.Parallel()
	env := quiet().NewTestWorkflowEnvironment()
	var r *activities.Runner
	env.OnActivity(r.RunAgent, mock.Anything, mock.Anything).Return(activities.RunAgentResult{
		Attempt: 5, Outcome: record.InfraFault, TaskFault: "before the attempt: no room",
	}, nil)
	in := externalWorkflow()
	in.Agent = spec.Agent{Func: "f", Queue: "rollout-cpu"}
	env.ExecuteWorkflow(workflows.RolloutWorkflow, in)
	var out workflows.RolloutResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Contains(t, out.Quarantine, "no room")
}
