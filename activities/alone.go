package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// PlanEvaluationInput asks with which versions of the other policies the version of a policy is
// evaluated.
type PlanEvaluationInput struct {
	Run     string      `json:"run"`
	Kind    record.Kind `json:"kind"`
	Policy  string      `json:"policy"`
	Version int         `json:"version"`
}

// PlanEvaluationResult has these versions.
type PlanEvaluationResult struct {
	// Promoted has the version of each policy by its name, also of Policy, that the version is
	// evaluated with: what is promoted, or what was when it was evaluated or decided on before.
	Promoted map[string]int `json:"promoted"`
	// Current has what is promoted of each policy now, whatever was evaluated before.
	Current map[string]int `json:"current,omitempty"`
	// Baseline is true if these were not evaluated together, so that there is nothing to
	// compare the version with.
	Baseline bool `json:"baseline,omitempty"`
}

// PlanEvaluation reads what is promoted of each policy, for a run that promotes each alone. If
// the version was decided on or evaluated before, by an execution that was reset since, it
// returns the versions of then, so that nothing is evaluated twice with different results.
func (c *Coordinator) PlanEvaluation(ctx context.Context, in PlanEvaluationInput) (out PlanEvaluationResult, err error) {
	defer temporalError(&err)
	run, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return out, err
	}
	if out.Current, err = c.promotedOf(ctx, in.Run, s); err != nil {
		return out, err
	}
	out.Promoted = out.Current
	var before DecidePromotionResult
	decided := false
	if in.Kind == record.Gate {
		if before, decided, err = c.recordedDecision(ctx, in.Run, in.Policy, in.Version); err != nil {
			return out, err
		}
		if decided && before.Decision.Versions != nil {
			out.Promoted = before.Decision.Versions
		}
	}
	evaluations, err := c.Ledger.Evaluations(ctx, in.Run)
	if err != nil {
		return out, fmt.Errorf("read the evaluations of run %s: %w", in.Run, err)
	}
	b := policyBlock{kind: in.Kind, version: in.Version, first: s.FirstTask(in.Policy, run.Splits[in.Kind].Count)}
	if slices.ContainsFunc(evaluations, func(e record.Evaluation) bool {
		return e.Kind == in.Kind && e.Policy == in.Policy && e.Version == in.Version
	}) {
		// A decision that was refused because another policy moved has what is promoted since.
		versions, err := c.versionsOf(ctx, in.Run, b)
		if err != nil {
			return out, err
		}
		if versions != nil {
			versions[in.Policy] = out.Promoted[in.Policy]
			out.Promoted = versions
		}
	}
	if decided {
		return out, nil
	}
	if in.Kind == record.Gate {
		_, found, err := c.findBlock(ctx, run, s, evaluations, out.Promoted)
		out.Baseline = !found
		return out, err
	}
	return out, nil
}

// promotedOf returns the promoted version of each policy of a run.
func (c *Coordinator) promotedOf(ctx context.Context, run string, s spec.Spec) (map[string]int, error) {
	out := map[string]int{}
	for _, name := range s.PolicyNames() {
		p, err := c.Ledger.Promoted(ctx, run, name)
		if err != nil {
			return nil, fmt.Errorf("read the promoted version of policy %s of run %s: %w", name, run, err)
		}
		out[name] = p.Version
	}
	return out, nil
}

// policyBlock are the rollouts of an evaluation: those of a step from an ordinal of a task on.
type policyBlock struct {
	kind           record.Kind
	version, first int
}

// versionsOf returns the versions that the rollouts of an evaluation were sampled from; nil if
// none of them has ended.
func (c *Coordinator) versionsOf(ctx context.Context, run string, b policyBlock) (map[string]int, error) {
	scores, err := c.Ledger.Scores(ctx, run, model.DefaultPolicy, b.kind, b.version)
	if err != nil {
		return nil, fmt.Errorf("read the rewards of version %d: %w", b.version, err)
	}
	i := slices.IndexFunc(scores, func(s record.Score) bool { return s.Task == b.first })
	if i < 0 {
		return nil, nil
	}
	address := record.Address{
		RolloutID: record.RolloutID{Run: run, Kind: b.kind, Step: b.version, Task: b.first, Sample: scores[i].Sample}, Attempt: scores[i].Attempt,
	}
	a, err := c.Attempts.Attempt(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("read attempt %s: %w", address, err)
	}
	return a.Terms.Versions(), nil
}

// findBlock returns the newest evaluation on the gate split that was of these versions.
func (c *Coordinator) findBlock(ctx context.Context, run record.Run, s spec.Spec, evaluations []record.Evaluation, versions map[string]int) (policyBlock, bool, error) {
	gates := slices.DeleteFunc(slices.Clone(evaluations), func(e record.Evaluation) bool { return e.Kind != record.Gate })
	slices.SortStableFunc(gates, func(a, b record.Evaluation) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.Policy, b.Policy))
	})
	for _, e := range gates {
		b := policyBlock{kind: record.Gate, version: e.Version, first: s.FirstTask(e.Policy, run.Splits[record.Gate].Count)}
		// Without its number a version was not part of the evaluation.
		if e.Policy != model.DefaultPolicy && versions[e.Policy] != e.Version {
			continue
		}
		of, err := c.versionsOf(ctx, run.Name, b)
		if err != nil {
			return policyBlock{}, false, err
		}
		if of != nil && maps.Equal(of, versions) {
			return b, true, nil
		}
	}
	return policyBlock{}, false, nil
}

// decideAlone compares a version of one of several policies, evaluated with what is promoted of
// the others, with what is promoted of all.
func (c *Coordinator) decideAlone(ctx context.Context, in DecidePromotionInput, run record.Run, s spec.Spec) (model.Decision, error) {
	promoted, err := c.promotedOf(ctx, in.Run, s)
	if errors.Is(err, record.ErrNotFound) {
		return model.Unpaired(in.Candidate, -1, "no version is promoted to compare it with"), nil
	}
	if err != nil {
		return model.Decision{}, err
	}
	refuse := func(obstacle string) (model.Decision, error) {
		d := model.Unpaired(in.Candidate, promoted[in.Policy], obstacle)
		d.Policy, d.Versions = in.Policy, promoted
		return d, nil
	}
	if promoted[in.Policy] == in.Candidate {
		return refuse("it is promoted already")
	}
	g := gate{tasks: run.Splits[record.Gate].Count, samples: s.Evaluation.Samples}
	own := policyBlock{kind: record.Gate, version: in.Candidate, first: s.FirstTask(in.Policy, g.tasks)}
	of, err := c.versionsOf(ctx, in.Run, own)
	if err != nil {
		return model.Decision{}, err
	}
	if moved := movedSince(s.PolicyNames(), of, promoted, in.Policy); len(moved) > 0 {
		return refuse(fmt.Sprintf("the promoted version of %s moved after the evaluation had begun", strings.Join(moved, ", ")))
	}
	rewards, obstacle, err := c.gateRewards(ctx, in, g, own)
	if err != nil || obstacle != "" {
		return orRefuse(refuse, obstacle, err)
	}
	baseline, obstacle, err := c.baselineRewards(ctx, in, run, s, g, promoted)
	if err != nil || obstacle != "" {
		return orRefuse(refuse, obstacle, err)
	}
	d, err := model.DecidePaired(in.Candidate, promoted[in.Policy], rewards, baseline, s.Promotion.Margin, s.Promotion.Significance)
	if err != nil {
		return d, invalid(err)
	}
	d.Policy, d.Versions = in.Policy, promoted
	return d, nil
}

func orRefuse(refuse func(string) (model.Decision, error), obstacle string, err error) (model.Decision, error) {
	if err != nil {
		return model.Decision{}, err
	}
	return refuse(obstacle)
}

// movedSince returns the policies but for one whose promoted version is not the one that an
// evaluation sampled from. of is nil if nothing was sampled.
func movedSince(names []string, of, promoted map[string]int, but string) []string {
	var out []string
	for _, name := range names {
		if name != but && of != nil && of[name] != promoted[name] {
			out = append(out, name)
		}
	}
	return out
}

// baselineRewards returns the mean rewards by task of what is promoted: those of an evaluation
// on record, or those that were made to compare this candidate with.
func (c *Coordinator) baselineRewards(ctx context.Context, in DecidePromotionInput, run record.Run, s spec.Spec, g gate, promoted map[string]int) ([]float64, string, error) {
	evaluations, err := c.Ledger.Evaluations(ctx, in.Run)
	if err != nil {
		return nil, "", fmt.Errorf("read the evaluations of run %s: %w", in.Run, err)
	}
	b, found, err := c.findBlock(ctx, run, s, evaluations, promoted)
	if err != nil {
		return nil, "", err
	}
	if !found {
		b = policyBlock{kind: record.Gate, version: in.Candidate, first: s.FirstBaselineTask(in.Policy, g.tasks)}
		of, err := c.versionsOf(ctx, in.Run, b)
		if err != nil {
			return nil, "", err
		}
		if !maps.Equal(of, promoted) {
			return nil, "the promoted versions of the policies were not evaluated together", nil
		}
	}
	return c.gateRewards(ctx, in, g, b)
}
