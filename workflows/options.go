package workflows

import (
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
)

// forever returns a policy that retries without limit: infrastructure that is away comes
// back, and giving up would lose the run. Only errors that need a change of the spec end
// the retries.
func forever(first, longest time.Duration) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval:        first,
		BackoffCoefficient:     2,
		MaximumInterval:        longest,
		NonRetryableErrorTypes: []string{activities.ErrTypeInvalid},
	}
}

// coordination returns a context for the short activities on the training queue: database
// rows and small files, mostly a matter of seconds.
func coordination(ctx workflow.Context, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: 10 * time.Minute,                              // a batch takes seconds; estimates from five steps of thousands of long attempts, minutes
		HeartbeatTimeout:    10 * time.Second,                              // seconds lost when a worker dies; keepAlive beats every 2
		RetryPolicy:         forever(200*time.Millisecond, 10*time.Second), // a database restarts within seconds
		Summary:             summary,
	})
}

// training returns a context for the activities on the GPU queue.
func training(ctx workflow.Context, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:             QueueTrainGPU,
		StartToCloseTimeout:   24 * time.Hour,   // an update of a large model may take long; heartbeats show that it goes on
		HeartbeatTimeout:      10 * time.Second, // seconds lost when a GPU worker dies; it beats every second
		RetryPolicy:           forever(time.Second, 30*time.Second),
		Summary:               summary,
		DisableEagerExecution: true, // one at a time on the queue's own workers
	})
}

// rollouts returns a context for one attempt of an agent.
func rollouts(ctx workflow.Context, agent spec.Agent, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           agent.Queue,
		StartToCloseTimeout: 24 * time.Hour,   // the agent's own limit ends it; waiting for a gateway to come back does not count
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies, and 4 ms of server CPU a beat
		RetryPolicy:         forever(500*time.Millisecond, 30*time.Second),
		Summary:             summary,
	})
}

// beginOrEnd returns a context for the short activities before and after an external
// agent.
func beginOrEnd(ctx workflow.Context, agent spec.Agent, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           agent.Queue,
		StartToCloseTimeout: 2 * time.Minute, // rows of the store; closing a session takes 30 s at the worst
		RetryPolicy:         forever(500*time.Millisecond, 30*time.Second),
		Summary:             summary,
	})
}

// agentWorkflow returns a context for an agent that is a workflow. It is asked to end
// with its rollout, so that it can clean up.
func agentWorkflow(ctx workflow.Context, t spec.Temporal, id string, limit time.Duration, summary string) workflow.Context {
	return withChild(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:               id,
		TaskQueue:                t.Queue,
		WorkflowExecutionTimeout: limit,
		ParentClosePolicy:        enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		StaticSummary:            summary,
	})
}

// agentActivity returns a context for an agent that is an activity. It is tried once,
// since each try is an attempt, and waits for a worker without limit. An agent with a
// limit on its idle time has to send heartbeats.
func agentActivity(ctx workflow.Context, t spec.Temporal, limit, idle time.Duration, summary string) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           t.Queue,
		StartToCloseTimeout: limit,
		HeartbeatTimeout:    idle,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:             summary,
	})
}

// grading returns a context for a grader command. The store counts how often the command
// failed, since no outage must use up the tries of a task.
func grading(ctx workflow.Context, agent spec.Agent, grader spec.Grader) workflow.Context {
	return withActivity(ctx, workflow.ActivityOptions{
		TaskQueue:           agent.Queue,
		StartToCloseTimeout: time.Duration(grader.Seconds*float64(time.Second)) + 5*time.Minute, // its own limit, and time for a store that is slow
		HeartbeatTimeout:    10 * time.Second,                                                   // seconds lost when a worker dies; it beats every second
		RetryPolicy:         forever(time.Second, 30*time.Second),
	})
}

// window is the most children or activities that a workflow keeps pending: an
// eighth of the server's limit of 2,000, enough to fill any worker here.
const window = 256

// evaluationChunk is how many rollouts one execution of EvaluationWorkflow runs
// before it continues as new: about 3,000 events of the 4,096 that suggest it.
const evaluationChunk = 1000
