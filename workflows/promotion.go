package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// Approval is a candidate that waits for a person.
type Approval struct {
	Decision model.Decision `json:"decision"`
	Deadline time.Time      `json:"deadline"`
}

// gate evaluates version v on the gate split and promotes it if it is better, or
// asks a person to. An evaluation that fails promotes nothing.
func (t *trainingRun) gate(ctx workflow.Context, v int) (*float64, error) {
	t.Evaluated = v
	if t.Spec.Promotion.Alone {
		return t.gateEach(ctx, v)
	}
	e, err := t.evaluate(ctx, record.Gate, v)
	if evaluationFailed(err) {
		workflow.GetLogger(ctx).Warn("version not promoted", "version", v, "error", err)
		return nil, t.recordDecision(ctx, model.Decision{Candidate: v, Promoted: t.Promoted, Baseline: t.Gate, Obstacle: err.Error()}, "refused")
	}
	if err != nil {
		return nil, err
	}
	d, err := t.settle(ctx, t.policy(), v)
	if err == nil && d != nil {
		err = t.shadow(ctx, *d)
	}
	return &e.Mean, err
}

// settle decides about version v of a policy by its evaluation, and does what follows. If v is
// to reply in the shadow first, it only returns the decision.
func (t *trainingRun) settle(ctx workflow.Context, policy string, v int) (*model.Decision, error) {
	if err := t.pointer.Lock(ctx); err != nil {
		return nil, err
	}
	defer t.pointer.Unlock()
	r, err := t.decide(ctx, policy, v)
	if err != nil {
		return nil, err
	}
	d := r.Decision
	switch {
	case r.Verdict != "":
		return nil, t.applyRecorded(ctx, r)
	case !d.Accept:
		return nil, t.recordDecision(ctx, d, "refused")
	case t.Spec.FromTraffic() && t.Spec.Traffic.Train.Shadow != nil:
		return &d, nil
	}
	return nil, t.proceed(ctx, d)
}

// proceed does what follows for a candidate that passed all comparisons without users.
func (t *trainingRun) proceed(ctx workflow.Context, d model.Decision) error {
	if t.Spec.FromTraffic() && t.Spec.Traffic.Train.Experiment != nil {
		t.experiment(ctx, d)
		return nil
	}
	return t.accept(ctx, d)
}

// accept promotes a candidate, or asks a person to.
func (t *trainingRun) accept(ctx workflow.Context, d model.Decision) error {
	if t.Spec.Promotion.Approval {
		return t.requestApproval(ctx, d)
	}
	return t.promote(ctx, d)
}

// decide compares version v of a policy with the promoted one.
func (t *trainingRun) decide(ctx workflow.Context, policy string, v int) (activities.DecidePromotionResult, error) {
	var c *activities.Coordinator
	var r activities.DecidePromotionResult
	err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("version %d", v)), c.DecidePromotion, activities.DecidePromotionInput{
		Run: t.Run, Policy: policy, Candidate: v, Set: t.settingsOf(v),
	}).Get(ctx, &r)
	if t.Spec.Promotion.Alone {
		r.Decision.Policy = policy
	}
	return r, err
}

// applyRecorded takes over a decision that is on record already, because this execution
// was reset to before it. A person who was asked then is not asked again.
func (t *trainingRun) applyRecorded(ctx workflow.Context, r activities.DecidePromotionResult) error {
	if r.Moved() {
		return t.promote(ctx, r.Decision)
	}
	return t.recordDecision(ctx, r.Decision, r.Verdict)
}

// recordDecision records a decision that moves nothing.
func (t *trainingRun) recordDecision(ctx workflow.Context, d model.Decision, verdict string) error {
	t.addDecision(d)
	var c *activities.Coordinator
	var r activities.RecordDecisionResult
	err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("version %d", d.Candidate)), c.RecordDecision, activities.RecordDecisionInput{
		Run: t.Run, Policy: t.policyOf(d), Decision: d, Verdict: verdict,
	}).Get(ctx, &r)
	if r.Verdict != "" {
		workflow.GetLogger(ctx).Warn("version was decided on before", "version", d.Candidate, "verdict", r.Verdict)
		t.setPromoted(t.policyOf(d), r.Promoted)
	}
	return err
}

// promote moves the promoted pointer, unless it was moved or pinned since the decision.
func (t *trainingRun) promote(ctx workflow.Context, d model.Decision) error {
	return t.promoteAs(ctx, t.policyOf(d), d)
}

// promoteAs does so for a version of any policy.
func (t *trainingRun) promoteAs(ctx workflow.Context, policy string, d model.Decision) error {
	t.addDecision(d)
	var c *activities.Coordinator
	var r activities.PromoteVersionResult
	err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("version %d", d.Candidate)), c.PromoteVersion, activities.PromoteVersionInput{
		Run: t.Run, Policy: policy, DecisionID: activities.DecisionID(d.Candidate),
		Version: d.Candidate, Previous: d.Promoted, Decision: d,
	}).Get(ctx, &r)
	if err != nil {
		return err
	}
	t.setPromoted(policy, r.Promoted)
	if r.Moved {
		t.Gate = d.Reward
	} else {
		workflow.GetLogger(ctx).Warn("version not promoted", "version", d.Candidate, "reason", r.Reason)
	}
	return nil
}

// requestApproval makes d the decision that waits for a person, in place of an older
// one.
func (t *trainingRun) requestApproval(ctx workflow.Context, d model.Decision) error {
	if old := t.Pending; old != nil {
		t.Pending = nil
		if err := t.recordDecision(ctx, old.Decision, fmt.Sprintf("superseded by version %d", d.Candidate)); err != nil {
			return err
		}
	}
	wait := time.Duration(t.Spec.Promotion.ApprovalHours * float64(time.Hour))
	t.Pending = &Approval{Decision: d, Deadline: workflow.Now(ctx).Add(wait)}
	t.refuseAtDeadline(ctx, t.Pending)
	return nil
}

// refuseAtDeadline refuses a when its deadline passes undecided.
func (t *trainingRun) refuseAtDeadline(ctx workflow.Context, a *Approval) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		decided, err := workflow.AwaitWithTimeout(ctx, a.Deadline.Sub(workflow.Now(ctx)), func() bool { return t.Pending != a })
		if err != nil || decided {
			return // the run ends, or the decision was made
		}
		t.Pending = nil
		t.deciding++
		defer func() { t.deciding-- }()
		if err := t.recordDecision(ctx, a.Decision, "timed_out"); err != nil {
			workflow.GetLogger(ctx).Error("record that nobody decided", "version", a.Decision.Candidate, "error", err)
		}
	})
}

// awaitApproval waits until no decision is pending and each is on record.
func (t *trainingRun) awaitApproval(ctx workflow.Context) error {
	decided := func() bool {
		return t.Pending == nil && t.Experiment == nil && t.deciding == 0 && workflow.AllHandlersFinished(ctx)
	}
	switch {
	case t.Pending != nil:
		t.enter(ctx, PhaseApproval, fmt.Sprintf("version %d", t.Pending.Decision.Candidate))
	case decided():
		return nil
	}
	return workflow.Await(ctx, decided)
}

// evaluate runs a version on a split.
func (t *trainingRun) evaluate(ctx workflow.Context, kind record.Kind, v int) (activities.Evaluation, error) {
	id := evaluationID(t.Run, kind, v)
	t.enter(ctx, PhaseEvaluation, id)
	in := EvaluationInput{
		Run: t.Run, Kind: kind, Policy: model.DefaultPolicy, Version: v, Tasks: t.Splits[kind].Count,
		Samples: t.Spec.Evaluation.Samples, Greedy: kind == record.Test,
	}
	if t.optimizes {
		in.Of, in.Version, in.Prompts = record.PromptsPolicy, v, t.promptsOf(v)
	}
	in.Agent, in.Grader = forChildren(t.Spec)
	return runChild[activities.Evaluation](ctx, id, evaluationSummary(in), EvaluationWorkflow, in)
}

// report evaluates a version on the test split. Nothing depends on the result, so a
// failed evaluation is left out.
func (t *trainingRun) report(ctx workflow.Context, v int) (*activities.Evaluation, error) {
	e, err := t.evaluate(ctx, record.Test, v)
	if evaluationFailed(err) {
		workflow.GetLogger(ctx).Warn("version not reported", "version", v, "error", err)
		return nil, nil
	}
	return &e, err
}

// evaluationFailed reports whether err means that a version could not be evaluated, or
// that a person cancelled its evaluation. Other errors mean that the run is in trouble.
func evaluationFailed(err error) bool {
	var failure *temporal.ApplicationError
	return evaluationStopped(err) || errors.As(err, &failure) && failure.Type() == ErrTypeEvaluation
}

// evaluationStopped reports whether err says that a person cancelled an evaluation.
func evaluationStopped(err error) bool {
	var stopped *stoppedError
	return errors.As(err, &stopped)
}
