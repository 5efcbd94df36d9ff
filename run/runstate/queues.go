package runstate

import (
	"context"
	"fmt"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/workflows"
)

// IdleQueues lists the queues of a run that no worker polls.
func IdleQueues(ctx context.Context, c client.Client, agents string) ([]string, error) {
	var idle []string
	for _, q := range []struct {
		name string
		kind enums.TaskQueueType
	}{
		{workflows.QueueTraining, enums.TASK_QUEUE_TYPE_WORKFLOW},
		{agents, enums.TASK_QUEUE_TYPE_ACTIVITY},
		{workflows.QueueTrainGPU, enums.TASK_QUEUE_TYPE_ACTIVITY},
	} {
		d, err := c.DescribeTaskQueue(ctx, q.name, q.kind)
		if err != nil {
			return nil, fmt.Errorf("describe queue %s: %w", q.name, err)
		}
		if len(d.Pollers) > 0 {
			continue
		}
		if q.name == workflows.QueueTrainGPU {
			busy, err := TrainerWorks(ctx, c)
			if err != nil {
				return nil, err
			}
			if busy {
				continue
			}
		}
		idle = append(idle, q.name)
	}
	return idle, nil
}

// TrainerWorks reports whether a worker has taken an activity from the training queue,
// for any run. A trainer takes one activity at a time and does not poll meanwhile, so
// Temporal stops listing it as a poller after five minutes.
func TrainerWorks(ctx context.Context, c client.Client) (bool, error) {
	runs, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: lookedInto, Query: "WorkflowType = 'TrainingWorkflow' AND ExecutionStatus = 'Running'",
	})
	if err != nil {
		return false, fmt.Errorf("list running workflows: %w", err)
	}
	for _, r := range runs.Executions {
		d, err := c.DescribeWorkflowExecution(ctx, r.Execution.WorkflowId, r.Execution.RunId)
		if err != nil {
			return false, fmt.Errorf("describe workflow %s: %w", r.Execution.WorkflowId, err)
		}
		for _, a := range d.PendingActivities {
			switch a.ActivityType.GetName() {
			case "InitPolicy", "TrainStep", "TrainCritic", "ScoreBatch", "ScoreReference":
				if a.State == enums.PENDING_ACTIVITY_STATE_STARTED {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// Ask asks for the progress of a run under way and for its obstacles. If the run itself
// does not answer, progress is nil and unanswered says why. agents is the queue of the
// run's agents.
func Ask(ctx context.Context, c client.Client, run, agents string, l Leases) (progress *workflows.Progress, found Obstacles, unanswered, err error) {
	if found, err = Find(ctx, c, run, agents, l); err != nil {
		return nil, found, nil, err
	}
	p, unanswered := Progress(ctx, c, run)
	if unanswered == nil {
		progress = &p
	}
	return progress, found, unanswered, nil
}

// Progress asks a run for its progress, and the evaluation that is under way, if one is,
// for its number of rollouts.
func Progress(ctx context.Context, c client.Client, run string) (p workflows.Progress, err error) {
	if err := Query(ctx, c, run, &p); err != nil || p.Phase != workflows.PhaseEvaluation {
		return p, err
	}
	if Query(ctx, c, p.Subject, &p.Rollouts) != nil {
		p.Rollouts = workflows.Count{} // it has not begun, or has just ended
	}
	return p, nil
}

// Query asks a workflow for its progress.
func Query(ctx context.Context, c client.Client, id string, out any) error {
	value, err := c.QueryWorkflow(ctx, id, "", workflows.QueryProgress)
	if err != nil {
		return err
	}
	return value.Get(out)
}
