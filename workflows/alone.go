package workflows

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// policyOf returns the policy that a decision is about.
func (t *trainingRun) policyOf(d model.Decision) string { return cmp.Or(d.Policy, t.policy()) }

// setPromoted takes in which version of a policy is promoted.
func (t *trainingRun) setPromoted(policy string, version int) {
	if !t.Spec.Promotion.Alone {
		t.Promoted = version
		return
	}
	promoted := maps.Clone(t.Policies) // what a query returned stays as it is
	if promoted == nil {
		promoted = map[string]int{}
	}
	promoted[policy] = version
	t.Policies = promoted
}

// promotedText names what is promoted.
func (t *trainingRun) promotedText() string {
	if len(t.Policies) == 0 {
		return fmt.Sprintf("version %d", t.Promoted)
	}
	var parts []string
	for _, name := range t.Spec.PolicyNames() {
		parts = append(parts, fmt.Sprintf("%s@%d", name, t.Policies[name]))
	}
	return strings.Join(parts, ", ")
}

// PromotedText names what is promoted, such as "version 4" or "checker@4, writer@2".
func (p Progress) PromotedText() string { return promotedText(p.Promoted, p.Policies) }

// PromotedText names what is promoted, such as "version 4" or "checker@4, writer@2".
func (r TrainingResult) PromotedText() string { return promotedText(r.Promoted, r.Policies) }

// promotedText is for those who are not a workflow, and have no spec.
func promotedText(promoted int, policies map[string]int) string {
	if len(policies) == 0 {
		return fmt.Sprintf("version %d", promoted)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		parts = append(parts, fmt.Sprintf("%s@%d", name, policies[name]))
	}
	return strings.Join(parts, ", ")
}

// promoteEach promotes version 0 of each policy, also of those that are frozen. No joint version
// is ever promoted.
func (t *trainingRun) promoteEach(ctx workflow.Context, d model.Decision) error {
	for _, name := range t.Spec.PolicyNames() {
		d.Policy = name
		if err := t.promote(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// gateEach evaluates version v of each trained policy on the gate split, one after the other,
// together with what is promoted of the others by then, and promotes it if that is better. It
// returns the mean reward of what is promoted afterwards.
func (t *trainingRun) gateEach(ctx workflow.Context, v int) (*float64, error) {
	for _, name := range t.Spec.TrainedPolicies() {
		if err := t.gatePolicy(ctx, name, v); err != nil {
			return nil, err
		}
	}
	mean := t.Gate
	return &mean, nil
}

// gatePolicy does so for one policy. An evaluation that fails promotes nothing.
func (t *trainingRun) gatePolicy(ctx workflow.Context, policy string, v int) error {
	plan, err := t.planEvaluation(ctx, record.Gate, policy, v)
	if err != nil {
		return err
	}
	_, err = t.evaluateAlone(ctx, record.Gate, policy, v, plan.Promoted, false)
	if err == nil && plan.Baseline {
		_, err = t.evaluateAlone(ctx, record.Gate, policy, v, plan.Promoted, true)
	}
	if evaluationFailed(err) {
		workflow.GetLogger(ctx).Warn("version not promoted", "policy", policy, "version", v, "error", err)
		return t.recordDecision(ctx, model.Decision{
			Policy: policy, Candidate: v, Promoted: plan.Promoted[policy], Versions: plan.Promoted, Baseline: t.Gate, Obstacle: err.Error(),
		}, "refused")
	}
	if err != nil {
		return err
	}
	_, err = t.settle(ctx, policy, v)
	return err
}

// planEvaluation asks with which versions of the others version v of a policy is evaluated. It
// takes in what is promoted now, because people move promoted versions while the run goes on.
func (t *trainingRun) planEvaluation(ctx workflow.Context, kind record.Kind, policy string, v int) (activities.PlanEvaluationResult, error) {
	var c *activities.Coordinator
	var out activities.PlanEvaluationResult
	err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("version %d of %s", v, policy)), c.PlanEvaluation, activities.PlanEvaluationInput{
		Run: t.Run, Kind: kind, Policy: policy, Version: v,
	}).Get(ctx, &out)
	if err == nil && len(out.Current) > 0 { // workers of older releases don't say it
		t.Policies = out.Current
	}
	return out, err
}

// evaluateAlone evaluates version v of a policy on a split, together with what is promoted of
// the others, or what is promoted of all, if that is the baseline of the comparison.
func (t *trainingRun) evaluateAlone(ctx workflow.Context, kind record.Kind, policy string, v int, promoted map[string]int, baseline bool) (activities.Evaluation, error) {
	n := t.Splits[kind].Count
	id, first, versions := policyEvaluationID(t.Run, kind, v, policy), t.Spec.FirstTask(policy, n), maps.Clone(promoted)
	if baseline {
		id, first = id+"/baseline", t.Spec.FirstBaselineTask(policy, n)
	} else {
		versions[policy] = v
	}
	t.enter(ctx, PhaseEvaluation, id)
	in := EvaluationInput{
		Run: t.Run, Kind: kind, Policy: model.DefaultPolicy, Version: v, Alone: policy, Versions: versions, First: first, Baseline: baseline,
		Tasks: n, Samples: t.Spec.Evaluation.Samples, Greedy: kind == record.Test,
	}
	in.Agent, in.Grader = forChildren(t.Spec)
	return runChild[activities.Evaluation](ctx, id, policyEvaluationSummary(in), EvaluationWorkflow, in)
}

// maxReportPlans bounds how often the last report is planned again because somebody moved a
// promoted version meanwhile.
const maxReportPlans = 10

// reportEach evaluates what is promoted at the end on the test split, as a version of the
// policy with the highest promoted number. Nothing is evaluated again if all policies are as
// they began.
func (t *trainingRun) reportEach(ctx workflow.Context) error {
	if !t.has(record.Test) {
		return nil
	}
	for range maxReportPlans {
		last := t.promotedLast()
		if last == "" {
			return nil
		}
		v := t.Policies[last]
		plan, err := t.planEvaluation(ctx, record.Test, last, v)
		if err != nil {
			return err
		}
		if t.promotedLast() != last || t.Policies[last] != v {
			continue // a promoted version was moved by hand since the last plan
		}
		return t.reportAlone(ctx, last, v, plan.Promoted)
	}
	workflow.GetLogger(ctx).Warn("nothing reported: the promoted versions move all the time", "plans", maxReportPlans)
	t.After = nil
	return nil
}

// promotedLast returns the trained policy with the highest promoted number, the first by name
// if there are several; empty if all are at version 0.
func (t *trainingRun) promotedLast() string {
	last := ""
	for _, name := range t.Spec.TrainedPolicies() {
		if t.Policies[name] > t.Policies[last] {
			last = name
		}
	}
	return last
}

// reportAlone evaluates version v of a policy on the test split with versions of the others.
func (t *trainingRun) reportAlone(ctx workflow.Context, policy string, v int, promoted map[string]int) error {
	e, err := t.evaluateAlone(ctx, record.Test, policy, v, promoted, false)
	if evaluationFailed(err) {
		workflow.GetLogger(ctx).Warn("version not reported", "policy", policy, "version", v, "error", err)
		t.After = nil
		return nil
	}
	t.After = &e
	return err
}

// policyEvaluationID returns the id of the child that evaluates a version of one of several
// policies, for example "demo/gate-5/writer".
func policyEvaluationID(run string, kind record.Kind, version int, policy string) string {
	return evaluationID(run, kind, version) + "/" + policy
}

// policyEvaluationSummary returns what Temporal's Web UI shows next to the type of its workflow.
func policyEvaluationSummary(in EvaluationInput) string {
	what := fmt.Sprintf("version %d of %s with what is promoted of the others", in.Version, in.Alone)
	if in.Baseline {
		what = fmt.Sprintf("what is promoted, to compare version %d of %s with", in.Version, in.Alone)
	}
	return fmt.Sprintf("%s, on the %s split, %d tasks", what, in.Kind, in.Tasks)
}
