package workflows

import (
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/spec"
)

// forever retries without limit: an infrastructure that is away comes back, and giving
// up would lose the run. Only errors end it that nothing but a change of the spec can
// mend.
func forever(first, longest time.Duration) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval:        first,
		BackoffCoefficient:     2,
		MaximumInterval:        longest,
		NonRetryableErrorTypes: []string{activities.ErrTypeInvalid},
	}
}

// coordination is for the short activities on the training queue: database rows
// and small files, mostly a matter of seconds.
func coordination(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: 10 * time.Minute,                              // a batch takes seconds; estimates from five steps of thousands of long attempts, minutes
		HeartbeatTimeout:    10 * time.Second,                              // seconds lost when a worker dies; it beats by itself every two
		RetryPolicy:         forever(200*time.Millisecond, 10*time.Second), // a database restarts within seconds
		Summary:             summary,
	})
}

// training is for the activities on the GPU queue.
func training(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:             QueueTrainGPU,
		StartToCloseTimeout:   24 * time.Hour,   // an update of a large model may take long; the heartbeat finds the dead
		HeartbeatTimeout:      10 * time.Second, // seconds lost when a GPU worker dies; it beats every second
		RetryPolicy:           forever(time.Second, 30*time.Second),
		Summary:               summary,
		DisableEagerExecution: true, // one at a time on the queue's own workers
	})
}

// rollouts is for one attempt of an agent.
func rollouts(ctx workflow.Context, agent spec.Agent, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           agent.Queue,
		StartToCloseTimeout: 24 * time.Hour,   // the agent's own limit ends it; waiting for a gateway to come back does not count
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies, and 4 ms of server CPU a beat
		RetryPolicy:         forever(500*time.Millisecond, 30*time.Second),
		Summary:             summary,
	})
}

// beginOrEnd is for the short activities before and after an agent that runs elsewhere.
func beginOrEnd(ctx workflow.Context, agent spec.Agent, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           agent.Queue,
		StartToCloseTimeout: 2 * time.Minute, // rows of the store; closing a session takes 30 s at the worst
		RetryPolicy:         forever(500*time.Millisecond, 30*time.Second),
		Summary:             summary,
	})
}

// agentWorkflow is for an agent that is a workflow. It is asked to end with its
// rollout, so that it can clear up.
func agentWorkflow(ctx workflow.Context, t spec.Temporal, id string, limit time.Duration, summary string) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:               id,
		TaskQueue:                t.Queue,
		WorkflowExecutionTimeout: limit,
		ParentClosePolicy:        enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		StaticSummary:            summary,
	})
}

// agentActivity is for an agent that is an activity. It is tried once, since each
// try is an attempt, and waits for a worker without limit. One that may be idle for
// a limited time has to send heartbeats.
func agentActivity(ctx workflow.Context, t spec.Temporal, limit, idle time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           t.Queue,
		StartToCloseTimeout: limit,
		HeartbeatTimeout:    idle,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:             summary,
	})
}

// grading is for a grader command. How often that may fail is counted in the store,
// since no outage must use up the tries of a task.
func grading(ctx workflow.Context, agent spec.Agent, grader spec.Grader) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
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
