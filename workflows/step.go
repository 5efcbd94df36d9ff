package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// step waits for the rollouts of step Step+1 and trains version Step+1 on them.
func (t *trainingRun) step(ctx workflow.Context) error {
	g := t.inFlight[0]
	step := g.step
	t.enter(ctx, PhaseRollouts, fmt.Sprintf("step %d", step))
	if err := workflow.Await(ctx, func() bool { return g.done }); err != nil {
		return err
	}
	if g.err != nil {
		return g.err
	}
	t.enter(ctx, PhaseUpdate, fmt.Sprintf("step %d", step))
	began := workflow.Now(ctx)
	batch, v, err := t.update(ctx, g)
	if err != nil {
		return err
	}
	t.updating = workflow.Now(ctx).Sub(began)
	if err := t.publish(ctx, step); err != nil {
		return err
	}
	t.Weights = v.Weights
	point := CurvePoint{Step: step, Reward: g.mean()}
	if len(g.replaced) > 0 { // the batch knows only the others
		g.addMetrics(map[string]float64{record.AllRollouts: point.Reward})
	}
	if t.evaluates(step) {
		if point.Gate, err = t.gate(ctx, step); err != nil {
			return err
		}
	}
	var c *activities.Coordinator
	err = workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("record step %d", step)), c.RecordStep, activities.RecordStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: step, Batch: batch.Batch, Metrics: merge(merge(batch.Metrics, v.Metrics), g.metrics),
	}).Get(ctx, nil)
	if err != nil {
		return err
	}
	t.warn(ctx, step, batch)
	t.advance(g, point)
	if n := len(t.Quarantined); n > maxQuarantined {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf(
			"%d tasks are quarantined, the last because: %s; fix the agent or the grader and retry the run, or fix the tasks and start another", n, t.Quarantined[n-1].Reason), activities.ErrTypeInvalid, nil)
	}
	return t.publishAttributes(ctx)
}

// warn takes in what a step's batch says about how the run learns.
func (t *trainingRun) warn(ctx workflow.Context, step int, batch activities.AssignCreditResult) {
	t.Untaught.Add(step, batch.Metrics)
	if text := t.Untaught.Text(); text != "" {
		workflow.GetLogger(ctx).Warn("steps taught nothing", "run", t.Run, "step", step, "reason", text)
	}
	n := int(batch.Metrics["batch/left_out_groups"])
	if n == 0 {
		return
	}
	t.LeftOut += n
	if len(batch.LeftOut) > 0 {
		t.LeftOutReason = shortReason(batch.LeftOut[0])
	}
	workflow.GetLogger(ctx).Warn("groups were left out of a batch", "run", t.Run, "step", step, "groups", n, "reasons", batch.LeftOut)
}

// update makes the batch of a step and the version trained on it. A critic, if the
// spec has one, then learns from the same batch.
func (t *trainingRun) update(ctx workflow.Context, g *stepGroups) (activities.AssignCreditResult, activities.VersionResult, error) {
	var v activities.VersionResult
	batch, err := t.credit(ctx, g)
	if err != nil {
		return batch, v, err
	}
	var trainer *activities.Trainer
	err = workflow.ExecuteActivity(training(ctx, fmt.Sprintf("version %d from %d", g.step, g.step-1)), trainer.TrainStep, activities.TrainStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Batch: batch.Batch, Set: t.settingsOf(g.step),
	}).Get(ctx, &v)
	if err != nil {
		return batch, v, err
	}
	learned, err := t.trainCritic(ctx, g, batch.Batch)
	v.Metrics = merge(v.Metrics, learned)
	return batch, v, err
}

// credit makes the batch of a step. The scores of a critic, a reference and a judge
// come before it, each only if the spec asks for it. No spec from before these
// activities asks for them, so no version of the workflow is needed.
func (t *trainingRun) credit(ctx workflow.Context, g *stepGroups) (activities.AssignCreditResult, error) {
	var c *activities.Coordinator
	var batch activities.AssignCreditResult
	values, err := t.values(ctx, g)
	if err != nil {
		return batch, err
	}
	reference, err := t.reference(ctx, g)
	if err != nil {
		return batch, err
	}
	judgments, err := t.judge(ctx, g)
	if err != nil {
		return batch, err
	}
	err = workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("batch of step %d", g.step)), c.AssignCredit, activities.AssignCreditInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups(), Values: values, Judgments: judgments, Reference: reference,
	}).Get(ctx, &batch)
	return batch, err
}

// advance makes a finished step part of the state.
func (t *trainingRun) advance(g *stepGroups, point CurvePoint) {
	t.inFlight = t.inFlight[1:]
	t.Step = g.step
	t.Cursor += len(g.results)
	for _, r := range g.all() {
		t.Failed += r.Failed
		t.Calls += r.Calls
		t.Tokens += r.Tokens
	}
	for _, q := range g.quarantined {
		if slices.ContainsFunc(t.Quarantined, func(known Quarantine) bool { return known.Index == q.Index }) {
			continue // met again; it counts once
		}
		q.Reason = shortReason(q.Reason)
		t.Quarantined = append(t.Quarantined, q)
	}
	t.addPoint(point)
}
