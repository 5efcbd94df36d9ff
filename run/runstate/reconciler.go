package runstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
)

// Store keeps the record of runs.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Runs(ctx context.Context) ([]record.Run, error)
	FinishRun(ctx context.Context, name string, status record.Status, result []byte) error
	ReopenRun(ctx context.Context, r record.Run) error
}

// Reconciler corrects the record of runs.
type Reconciler struct {
	Client    client.Client
	Namespace string
	Store     Store
	Log       *zap.Logger
	Every     time.Duration // 0 is the constant every
}

// every is the time between two rounds. A round lists the running workflows and looks at
// each run that is under way.
const every = 5 * time.Second

// Run reconciles until ctx ends. If Temporal or the store is away, it logs that and
// changes nothing on record.
func (r Reconciler) Run(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(r.Every, every))
	defer tick.Stop()
	for {
		if err := r.Step(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("correct the record of runs", zap.Error(err))
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
	active, err := active(ctx, r.Client)
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

func (r Reconciler) reconcile(ctx context.Context, run record.Run) error {
	now, err := Of(ctx, r.Client, run)
	if err == nil && now.Status == record.Running {
		err = r.resetStuck(ctx, run)
	}
	if err != nil || now.Status == run.Status {
		return err
	}
	if run.Status == record.Running {
		err = r.close(ctx, run, now)
	} else {
		err = r.Store.ReopenRun(ctx, run)
	}
	if errors.Is(err, record.ErrConflict) {
		return nil // another process has corrected it
	}
	if errors.Is(err, record.ErrForgotten) { // somebody reset a workflow whose records are gone
		return r.endReset(ctx, run, err)
	}
	if err == nil {
		r.Log.Info("record of a run corrected", zap.String("run", run.Name), zap.String("from", string(run.Status)), zap.String("to", string(now.Status)),
			zap.String("why", now.Failure().Error))
	}
	return err
}

// resetStuck resets a run further back if it was reset to where it waits forever.
func (r Reconciler) resetStuck(ctx context.Context, run record.Run) error {
	d, err := latest(ctx, r.Client, run)
	if err != nil || d == nil || d.GetWorkflowExtendedInfo().GetLastResetTime() == nil {
		return err // a run that was never reset hears of its children's ends
	}
	waits, err := stuck(ctx, r.Client, d)
	if err != nil || !waits {
		return err
	}
	events, err := historyOf(ctx, r.Client, d)
	if err != nil {
		return err
	}
	at, _ := Point(run.Name, events)
	if at == 0 {
		return nil
	}
	r.Log.Info("run was reset to where it waits for children that have ended: it is reset further back", zap.String("run", run.Name), zap.Int64("event", at))
	_, err = rewind(ctx, r.Client, r.Namespace, d, at, "it waited for children that had ended before it was reset")
	return err
}

// close ends a run on record, unless it was closed or got another execution
// meanwhile.
func (r Reconciler) close(ctx context.Context, was, now record.Run) error {
	current, err := r.Store.Run(ctx, was.Name)
	if err != nil || current.Status != record.Running || current.ExecutionID != was.ExecutionID {
		return err
	}
	if err := r.Store.FinishRun(ctx, was.Name, now.Status, now.Result); err != nil {
		return err
	}
	return r.endChildren(ctx, was)
}

// endReset terminates the workflow of a run that was reset after something had been removed
// from the run: it can't do its work again.
func (r Reconciler) endReset(ctx context.Context, run record.Run, why error) error {
	r.Log.Warn("a run was reset whose records are gone: its workflow is terminated", zap.String("run", run.Name), zap.Error(why))
	err := r.Client.TerminateWorkflow(ctx, run.WorkflowID, "", "it can't go on: "+why.Error())
	var gone *serviceerror.NotFound
	if err != nil && !errors.As(err, &gone) {
		return err
	}
	return r.endChildren(ctx, run)
}

// endChildren terminates the workflows that a run left running. Temporal does so itself,
// except for children of an execution that was reset.
func (r Reconciler) endChildren(ctx context.Context, run record.Run) error {
	page, err := r.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		PageSize: 1000, Query: fmt.Sprintf("RootWorkflowId = '%s' AND ExecutionStatus = 'Running'", run.WorkflowID),
	})
	if err != nil {
		return fmt.Errorf("list what run %s left running: %w", run.Name, err)
	}
	var all []error
	for _, e := range page.Executions {
		if e.Execution.WorkflowId == run.WorkflowID {
			continue
		}
		err := r.Client.TerminateWorkflow(ctx, e.Execution.WorkflowId, e.Execution.RunId, "its run has ended")
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
