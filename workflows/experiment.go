package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// experiment lets a candidate that passed the gate answer a share of conversations. It is
// promoted if users judge it better.
func (t *trainingRun) experiment(ctx workflow.Context, d model.Decision) {
	t.Experiment = &d
	t.awaitExperiment(ctx, d)
}

// awaitExperiment waits beside the run until the experiment with a candidate has ended, and
// puts on record what becomes of the candidate.
func (t *trainingRun) awaitExperiment(ctx workflow.Context, d model.Decision) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		var c *activities.Coordinator
		var end activities.ExperimentResult
		summary := fmt.Sprintf("version %d against version %d", d.Candidate, d.Promoted)
		err := workflow.ExecuteActivity(awaiting(ctx, summary), c.RunExperiment, activities.ExperimentInput{
			Run: t.Run, Policy: t.policy(), Candidate: d.Candidate, Control: d.Promoted,
		}).Get(ctx, &end)
		if ctx.Err() != nil {
			return // the run was cancelled, which ends its experiment
		}
		t.deciding++
		defer func() { t.deciding-- }()
		t.Experiment = nil
		if err != nil {
			end.Status, end.Reason = record.ExperimentEnded, "the experiment failed: "+Failure(err).Error
			if err := t.closeExperiment(ctx, end.Reason); err != nil {
				workflow.GetLogger(ctx).Error("end an experiment that failed", "version", d.Candidate, "error", err)
			}
		}
		if err := t.concludeExperiment(ctx, d, end); err != nil {
			workflow.GetLogger(ctx).Error("put the end of an experiment on record", "version", d.Candidate, "error", err)
		}
	})
}

// concludeExperiment promotes a candidate that users judge better, and no other.
func (t *trainingRun) concludeExperiment(ctx workflow.Context, d model.Decision, end activities.ExperimentResult) error {
	if err := t.pointer.Lock(ctx); err != nil {
		return err
	}
	defer t.pointer.Unlock()
	workflow.GetLogger(ctx).Info("experiment ended", "version", d.Candidate, "status", string(end.Status), "reason", end.Reason)
	t.segmentText = fmt.Sprintf("version %d: %s", d.Candidate, end.Reason)
	if t.phase == PhaseTraffic {
		t.enter(ctx, PhaseTraffic, t.segmentText)
	}
	if end.Status == record.ExperimentPromoted {
		return t.accept(ctx, d)
	}
	d.Accept, d.Obstacle = false, end.Reason
	return t.recordDecision(ctx, d, string(end.Status))
}

// endExperiment ends the experiment of a run that ends, without a promotion.
func (t *trainingRun) endExperiment(ctx workflow.Context) error {
	if t.Experiment == nil {
		return nil
	}
	return t.closeExperiment(ctx, "the run ends")
}

// closeExperiment puts the end of a running experiment on record.
func (t *trainingRun) closeExperiment(ctx workflow.Context, reason string) error {
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, "end the experiment"), c.EndExperiment, activities.EndExperimentInput{
		Run: t.Run, Policy: t.policy(), Reason: reason,
	}).Get(ctx, nil)
}
