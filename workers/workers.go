// Package workers says which code polls which task queue, and with what tuning.
//
// There are three queues, one function each: Training runs the workflows and the
// short activities that coordinate them, Rollout runs agents and graders on CPU
// machines, TrainGPU updates the policy, one activity at a time. A process may
// run any of them; the demo runs all three. The functions build workers and
// start nothing.
package workers

import (
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/workflows"
)

// stopTimeout is how long a stopping worker lets activities finish.
const stopTimeout = 5 * time.Second

// Registry takes workflows; a worker is one, and so is a replayer.
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

// Training polls the queue "training".
func Training(c client.Client, coordinator *activities.Coordinator) worker.Worker {
	w := worker.New(c, workflows.QueueTraining, worker.Options{WorkerStopTimeout: stopTimeout})
	Workflows(w)
	w.RegisterActivity(coordinator)
	return w
}

// Rollout polls queue (workflows.QueueRollout unless a spec names its own) and
// runs at most concurrent agents at once.
func Rollout(c client.Client, queue string, runner *activities.Runner, concurrent int) worker.Worker {
	w := worker.New(c, queue, worker.Options{
		DisableWorkflowWorker:              true,
		MaxConcurrentActivityExecutionSize: concurrent,
		WorkerStopTimeout:                  stopTimeout,
	})
	w.RegisterActivity(runner)
	return w
}

// TrainGPU polls the queue "train-gpu": one activity at a time, since a card
// holds one update, and no eager activities, which would go past that limit.
func TrainGPU(c client.Client, trainer *activities.Trainer) worker.Worker {
	w := worker.New(c, workflows.QueueTrainGPU, worker.Options{
		DisableWorkflowWorker:              true,
		DisableEagerActivities:             true,
		MaxConcurrentActivityExecutionSize: 1,
		WorkerStopTimeout:                  stopTimeout,
	})
	w.RegisterActivityWithOptions(trainer, activity.RegisterOptions{SkipInvalidStructFunctions: true}) // Close is no activity
	return w
}
