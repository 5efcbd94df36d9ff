package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
)

// step trains version Step into version Step+1, once the rollouts of that step
// are in.
func (t *trainingRun) step(ctx workflow.Context) error {
	w := t.waves[0]
	step := w.step
	t.enter(ctx, PhaseRollouts, fmt.Sprintf("step %d", step))
	if err := workflow.Await(ctx, func() bool { return w.done }); err != nil {
		return err
	}
	if w.err != nil {
		return w.err
	}
	t.enter(ctx, PhaseUpdate, fmt.Sprintf("step %d", step))
	batch, v, err := t.update(ctx, w)
	if err != nil {
		return err
	}
	if err := t.publish(ctx, step); err != nil {
		return err
	}
	t.Weights = v.Weights
	point := CurvePoint{Step: step, Reward: w.mean()}
	if t.evaluates(step) {
		if point.Gate, err = t.gate(ctx, step); err != nil {
			return err
		}
	}
	var c *activities.Coordinator
	err = workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("record step %d", step)), c.RecordStep, activities.RecordStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: step, Batch: batch.Batch, Metrics: merge(merge(batch.Metrics, v.Metrics), w.metrics),
	}).Get(ctx, nil)
	if err != nil {
		return err
	}
	t.advance(w, point)
	if n := len(t.Quarantined); n > mostQuarantined {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf(
			"%d tasks are quarantined, the last because: %s; mend the agent or the grader and retry the run, or mend the tasks and start another", n, t.Quarantined[n-1].Reason), activities.ErrTypeInvalid, nil)
	}
	return t.publishAttributes(ctx)
}

// update makes the batch of a wave and the version trained on it. Where the spec
// has a critic, that then learns from the batch.
func (t *trainingRun) update(ctx workflow.Context, w *wave) (activities.AssignCreditResult, activities.VersionResult, error) {
	var v activities.VersionResult
	batch, err := t.credit(ctx, w)
	if err != nil {
		return batch, v, err
	}
	var trainer *activities.Trainer
	err = workflow.ExecuteActivity(training(ctx, fmt.Sprintf("version %d from %d", w.step, w.step-1)), trainer.TrainStep, activities.TrainStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: w.step, Batch: batch.Batch, Set: t.settingsOf(w.step),
	}).Get(ctx, &v)
	if err != nil {
		return batch, v, err
	}
	learned, err := t.trainCritic(ctx, w, batch.Batch)
	v.Metrics = merge(v.Metrics, learned)
	return batch, v, err
}

// credit makes the batch of a wave. Where the spec has a critic, that estimates what
// the attempts would still earn before their credit is assigned. These activities
// belong to specs that no run had before there were critics, so histories of older
// code have the same ones as ever and no version of the workflow tells them apart.
func (t *trainingRun) credit(ctx workflow.Context, w *wave) (activities.AssignCreditResult, error) {
	var c *activities.Coordinator
	var batch activities.AssignCreditResult
	values, err := t.values(ctx, w)
	if err != nil {
		return batch, err
	}
	reference, err := t.reference(ctx, w)
	if err != nil {
		return batch, err
	}
	judgments, err := t.judge(ctx, w)
	if err != nil {
		return batch, err
	}
	err = workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("batch of step %d", w.step)), c.AssignCredit, activities.AssignCreditInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: w.step, Groups: w.groups(), Values: values, Judgments: judgments, Reference: reference,
	}).Get(ctx, &batch)
	return batch, err
}

// advance makes a finished step part of the state.
func (t *trainingRun) advance(w *wave, point CurvePoint) {
	t.waves = t.waves[1:]
	t.Step = w.step
	t.Cursor += len(w.results)
	for _, r := range slices.Concat(w.results, w.flat) {
		t.Failed += r.Failed
		t.Calls += r.Calls
		t.Tokens += r.Tokens
	}
	for _, q := range w.quarantined {
		q.Reason = shortened(q.Reason)
		t.Quarantined = append(t.Quarantined, q)
	}
	t.record(point)
}
