package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
)

// values has the critic score the attempts of a step; without a critic there are
// none. The critic of step s is version s−1, whatever the lag.
func (t *trainingRun) values(ctx workflow.Context, g *stepGroups) (string, error) {
	if t.Spec.Critic == nil {
		return "", nil
	}
	var trainer *activities.Trainer
	var r activities.ScoreBatchResult
	err := workflow.ExecuteActivity(training(ctx, fmt.Sprintf("values of step %d", g.step)), trainer.ScoreBatch, activities.ScoreBatchInput{
		Run: t.Run, Step: g.step, Groups: g.groups(),
	}).Get(ctx, &r)
	return r.Values, err
}

// trainCritic makes the critic's version of a step. There is one trainer,
// so it follows the policy's update and does not run beside it.
func (t *trainingRun) trainCritic(ctx workflow.Context, g *stepGroups, batch string) (map[string]float64, error) {
	if t.Spec.Critic == nil {
		return nil, nil
	}
	var trainer *activities.Trainer
	var v activities.VersionResult
	err := workflow.ExecuteActivity(training(ctx, fmt.Sprintf("critic %d from %d", g.step, g.step-1)), trainer.TrainCritic, activities.TrainCriticInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Batch: batch, Set: t.settingsOf(g.step),
	}).Get(ctx, &v)
	return v.Metrics, err
}
