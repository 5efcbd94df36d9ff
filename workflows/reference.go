package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
)

// reference has version 0 score the attempts of a step, if that is part of their
// rewards. No spec from before there was such a key asks for it, so no version of the
// workflow tells old histories apart.
func (t *trainingRun) reference(ctx workflow.Context, g *stepGroups) (string, error) {
	if t.Spec.Credit.KLInReward == nil {
		return "", nil
	}
	var trainer *activities.Trainer
	var r activities.ScoreReferenceResult
	err := workflow.ExecuteActivity(training(ctx, fmt.Sprintf("version 0 on step %d", g.step)), trainer.ScoreReference, activities.ScoreReferenceInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups(),
	}).Get(ctx, &r)
	return r.Reference, err
}
