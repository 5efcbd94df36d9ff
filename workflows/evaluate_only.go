package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// evaluateOnly executes a run that trains nothing: it makes version 0, evaluates it on
// the split that the spec names, and closes the record. If the evaluation fails, the run
// fails, unlike in a training: nothing else was asked for.
func (t *trainingRun) evaluateOnly(ctx workflow.Context) (TrainingResult, error) {
	if err := t.initPolicy(ctx); err != nil {
		return TrainingResult{}, err
	}
	if err := t.promote(ctx, model.Decision{Promoted: -1, Accept: true}); err != nil {
		return TrainingResult{}, err
	}
	t.Started = true
	e, err := t.evaluate(ctx, trace.Kind(t.Spec.Evaluation.Only), 0)
	if err != nil {
		return TrainingResult{}, err
	}
	return t.closeRecord(ctx, TrainingResult{Run: t.Run, Weights: t.Weights, Evaluation: &e})
}

// closeRecord records the outcome of the run.
func (t *trainingRun) closeRecord(ctx workflow.Context, out TrainingResult) (TrainingResult, error) {
	t.enter(ctx, PhaseFinished, fmt.Sprintf("version %d is promoted", t.Promoted))
	status := record.Completed
	if out.Stopped != nil {
		status = record.Stopped
	}
	var c *activities.Coordinator
	err := workflow.ExecuteActivity(coordination(ctx, "close the record"), c.FinishRun, activities.FinishRunInput{
		Run: t.Run, ExecutionID: workflow.GetInfo(ctx).FirstRunID, Status: status, Result: mustJSON(out),
	}).Get(ctx, nil)
	if err != nil {
		return out, err
	}
	return out, awaitHandlers(ctx)
}
