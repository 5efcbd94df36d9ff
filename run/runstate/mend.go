package runstate

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workflows"
)

// Mender lets runs go on after one of the two databases, the record and Temporal's, came
// from an earlier time than the other, or was lost. Whatever a run does twice comes from
// the record, or is equal. Nobody may work on the runs meanwhile.
type Mender struct {
	Client    client.Client
	Namespace string
	Store     interface {
		Store
		RebindRun(ctx context.Context, r record.Run, execution string) error
	}
}

// Rewind resets workflows to their beginning, because the record lacks results that their
// histories have: each of the open ones that is not another's child, and those that have
// completed although the record says that their runs are under way. It returns their ids.
func (m Mender) Rewind(ctx context.Context, open []*common.WorkflowExecution) (rewound []string, err error) {
	runs, err := m.Store.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		d, err := latest(ctx, m.Client, run)
		if err != nil {
			return nil, fmt.Errorf("ask Temporal about run %s: %w", run.Name, err)
		}
		if run.Status == record.Running && d != nil && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			open = append(open, d.WorkflowExecutionInfo.Execution)
		}
	}
	for _, w := range open {
		d, err := m.Client.DescribeWorkflowExecution(ctx, w.WorkflowId, w.RunId)
		var gone *serviceerror.NotFound
		if errors.As(err, &gone) {
			continue
		}
		if err != nil {
			return rewound, fmt.Errorf("describe workflow %s: %w", w.WorkflowId, err)
		}
		if d.WorkflowExecutionInfo.ParentExecution != nil || d.WorkflowExecutionInfo.TaskQueue != workflows.QueueTraining {
			continue
		}
		events, err := historyOf(ctx, m.Client, d)
		if err != nil {
			return rewound, fmt.Errorf("read the history of workflow %s: %w", w.WorkflowId, err)
		}
		for _, e := range events {
			if e.EventType != enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
				continue
			}
			if _, err := rewind(ctx, m.Client, m.Namespace, d, e.EventId, "the record is from an earlier time than this history"); err != nil {
				return rewound, err
			}
			rewound = append(rewound, w.WorkflowId)
			break
		}
	}
	return rewound, nil
}

// Restart starts again the workflow of each run that is under way by the record and that
// Temporal does not know. It returns the names of the runs.
func (m Mender) Restart(ctx context.Context) (restarted []string, err error) {
	runs, err := m.Store.Runs(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		if run.Status != record.Running {
			continue
		}
		d, err := latest(ctx, m.Client, run)
		if err != nil {
			return restarted, fmt.Errorf("ask Temporal about run %s: %w", run.Name, err)
		}
		if d != nil {
			continue
		}
		w, err := m.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: run.WorkflowID, TaskQueue: workflows.QueueTraining, Memo: map[string]any{"spec_digest": run.SpecDigest},
		}, "TrainingWorkflow", workflows.TrainingInput{Spec: run.Spec})
		if err == nil {
			err = m.Store.RebindRun(ctx, run, w.GetRunID())
		}
		if err != nil {
			return restarted, fmt.Errorf("start run %s again: %w", run.Name, err)
		}
		restarted = append(restarted, run.Name)
	}
	return restarted, nil
}
