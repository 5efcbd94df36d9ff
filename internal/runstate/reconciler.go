package runstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// Store keeps the record of runs.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Runs(ctx context.Context) ([]record.Run, error)
	FinishRun(ctx context.Context, name string, status record.Status, result []byte) error
	ReopenRun(ctx context.Context, r record.Run) error
}

// Reconciler puts the record of runs right.
type Reconciler struct {
	Client    client.Client
	Namespace string
	Store     Store
	Log       *zap.Logger
	Every     time.Duration // 0 is the constant every
}

// every is how often Temporal is asked: one listing and a look at each run that is
// under way.
const every = 5 * time.Second

// Run reconciles until ctx ends. That Temporal or the store is away is logged, and
// changes nothing on record.
func (r Reconciler) Run(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(r.Every, every))
	defer tick.Stop()
	for {
		if err := r.Step(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("put the record of runs right", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Step reconciles once.
func (r Reconciler) Step(ctx context.Context) error {
	runs, err := r.Store.Runs(ctx)
	if err != nil {
		return err
	}
	active, err := r.active(ctx)
	if err != nil {
		return err
	}
	var all []error
	for _, run := range runs {
		if run.Status == record.Running || active[run.WorkflowID] {
			all = append(all, r.reconcile(ctx, run))
		}
	}
	return errors.Join(all...)
}

// active are the ids of the training workflows that are running. The list lags a
// little behind, so that it only says where to look.
func (r Reconciler) active(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.Namespace, PageSize: 1000, Query: "WorkflowType = 'TrainingWorkflow' AND ExecutionStatus = 'Running'",
	}
	for {
		page, err := r.Client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list running workflows: %w", err)
		}
		for _, e := range page.Executions {
			out[e.Execution.WorkflowId] = true
		}
		if request.NextPageToken = page.NextPageToken; len(page.NextPageToken) == 0 {
			return out, nil
		}
	}
}

func (r Reconciler) reconcile(ctx context.Context, run record.Run) error {
	now, err := Of(ctx, r.Client, run)
	if err != nil || now.Status == run.Status {
		return err
	}
	if run.Status == record.Running {
		err = r.close(ctx, run, now)
	} else {
		err = r.Store.ReopenRun(ctx, run)
	}
	if errors.Is(err, trace.ErrConflict) {
		return nil // somebody else has put it right
	}
	if err == nil {
		r.Log.Info("record of a run put right", zap.String("run", run.Name), zap.String("from", string(run.Status)), zap.String("to", string(now.Status)),
			zap.String("why", now.Failure().Error))
	}
	return err
}

// close ends a run on record, unless it was closed or got another execution
// meanwhile.
func (r Reconciler) close(ctx context.Context, was, now record.Run) error {
	stands, err := r.Store.Run(ctx, was.Name)
	if err != nil || stands.Status != record.Running || stands.ExecutionID != was.ExecutionID {
		return err
	}
	return r.Store.FinishRun(ctx, was.Name, now.Status, now.Result)
}
