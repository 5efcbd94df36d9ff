package workers

import (
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/workflows"
)

// Tuning sets up the workers of a process. The zero value is right for a process that
// is ended together with everything else.
type Tuning struct {
	// Concurrent is the most agents that run at once; 0 is Temporal's default.
	Concurrent int
	// Drain is how long a stopping worker lets activities finish. After that it hands them
	// over to other workers. 0 is 5 seconds, and hands over nothing, because there is no
	// other worker.
	Drain time.Duration
	// Fatal is called with the error that ended a worker permanently, such as a namespace
	// that does not exist any more.
	Fatal func(error)
}

// options returns the options of every worker.
func (t Tuning) options() worker.Options {
	if t.Drain == 0 {
		return worker.Options{WorkerStopTimeout: 5 * time.Second, OnFatalError: t.Fatal}
	}
	return worker.Options{
		WorkerStopTimeout: t.Drain + handOverTime, OnFatalError: t.Fatal,
		Interceptors: []interceptor.WorkerInterceptor{&handOver{after: t.Drain}},
	}
}

// Registry registers workflows; workers and replayers implement it.
type Registry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// Workflows registers the workflows under their public names.
func Workflows(r Registry) {
	for name, f := range map[string]any{
		"TrainingWorkflow":   workflows.TrainingWorkflow,
		"RolloutWorkflow":    workflows.RolloutWorkflow,
		"EvaluationWorkflow": workflows.EvaluationWorkflow,
		"TryWorkflow":        workflows.TryWorkflow,
	} {
		r.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
}

// Training returns a worker for the queue "training".
func Training(c client.Client, coordinator *activities.Coordinator, t Tuning) worker.Worker {
	o := t.options()
	o.Interceptors = append(o.Interceptors, &keepAlive{})
	w := worker.New(c, workflows.QueueTraining, o)
	Workflows(w)
	w.RegisterActivity(coordinator)
	return w
}

// Rollout returns a worker for queue (workflows.QueueRollout unless a spec names another)
// that runs at most t.Concurrent agents at once.
func Rollout(c client.Client, queue string, runner *activities.Runner, t Tuning) worker.Worker {
	o := t.options()
	o.DisableWorkflowWorker = true
	o.MaxConcurrentActivityExecutionSize = t.Concurrent
	w := worker.New(c, queue, o)
	w.RegisterActivityWithOptions(runner, activity.RegisterOptions{SkipInvalidStructFunctions: true}) // Close is no activity
	return w
}

// TrainGPU returns a worker for the queue "train-gpu". It runs one activity at a time,
// since a card holds one update, and no eager activities, which would exceed that limit.
func TrainGPU(c client.Client, trainer *activities.Trainer, t Tuning) worker.Worker {
	o := t.options()
	o.DisableWorkflowWorker = true
	o.DisableEagerActivities = true
	o.MaxConcurrentActivityExecutionSize = 1
	w := worker.New(c, workflows.QueueTrainGPU, o)
	w.RegisterActivityWithOptions(trainer, activity.RegisterOptions{SkipInvalidStructFunctions: true}) // Close is no activity
	return w
}
