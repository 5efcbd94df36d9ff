package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
)

// values lets the critic score the attempts of a step and returns the blob of the scores,
// "" without a critic. The critic of step s is version s−1, whatever the lag.
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

// trainCritic makes the critic's version of a step. There is one trainer, so this follows
// the policy's update and does not run at the same time.
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

// reference lets version 0 score the attempts of a step, if that is part of their
// rewards. Specs from before there was such a key do not ask for it, so old histories
// need no version of the workflow.
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

// judge asks a judge about the calls of a step, if the spec wants that, and returns the
// blob of the judgments. Specs from before there were judges ask for none, so old
// histories need no version of the workflow.
func (t *trainingRun) judge(ctx workflow.Context, g *stepGroups) (string, error) {
	if t.Spec.Credit.Assignment != credit.Judge {
		return "", nil
	}
	var c *activities.Coordinator
	var out activities.JudgeCallsResult
	err := workflow.ExecuteActivity(judging(ctx, fmt.Sprintf("calls of step %d", g.step)), c.JudgeCalls, activities.JudgeCallsInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups(),
	}).Get(ctx, &out)
	g.addMetrics(out.Metrics)
	return out.Judgments, err
}

// judging returns a context for asking a judge about all attempts of a step.
func judging(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           QueueTraining,
		StartToCloseTimeout: 24 * time.Hour,   // for thousands of slow answers; the spec bounds the requests
		HeartbeatTimeout:    10 * time.Second, // seconds lost when a worker dies; it beats every second
		RetryPolicy:         forever(time.Second, 30*time.Second),
		Summary:             summary,
	})
}
