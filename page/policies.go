package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
)

// pointersOf returns the policies of a run that have a promoted version: each of several, if the
// spec promotes each alone, or else the run's own.
func pointersOf(run record.Run) []string {
	if of := specOf(run); of.Promotion.Alone {
		return of.PolicyNames()
	}
	return []string{promptsearch.PolicyOf(run)}
}

// judgedPolicies returns the policies under whose names there are evaluations and decisions.
// Policies that are promoted alone begin with a joint version, which is evaluated as that.
func judgedPolicies(run record.Run) []string {
	pointers := pointersOf(run)
	if own := promptsearch.PolicyOf(run); !slices.Contains(pointers, own) {
		return append([]string{own}, pointers...)
	}
	return pointers
}

// ofPolicy returns the words that follow the number of a version of one of several policies,
// such as " of writer". It is empty for the versions of a run.
func ofPolicy(policy string) string {
	if evaluation.IsOwn(policy) {
		return ""
	}
	return " of " + format.FirstLine(policy)
}

// referenceOf returns a reference to the version that was evaluated, in the form that
// `fulgurite compare` takes.
func referenceOf(e record.Evaluation) string {
	if evaluation.IsOwn(e.Policy) {
		return fmt.Sprintf("%s@%d", e.Run, e.Version)
	}
	return fmt.Sprintf("%s:%s@%d", e.Run, e.Policy, e.Version)
}

// changePath returns the path of the page that compares two evaluations of a run on one split.
func changePath(before, after record.Evaluation) string {
	if evaluation.IsOwn(before.Policy) && evaluation.IsOwn(after.Policy) {
		return pairPath(before.Run, before.Version, after.Version, after.Kind)
	}
	return betweenPath(before.Run, referenceOf(before), referenceOf(after), after.Kind)
}

// blockPath returns the path of the page with the attempts of an evaluation: of all of its step
// or, for one of several policies, of that policy.
func blockPath(run string, kind record.Kind, version int, policy string) string {
	path := stepPath(run, kind, version)
	if evaluation.IsOwn(policy) {
		return path
	}
	return path + "?" + blockQuery(policy, false)
}

// blockQuery returns the query that chooses one of the evaluations of a step.
func blockQuery(policy string, baseline bool) string {
	query := url.Values{"policy": {policy}}
	if baseline {
		query.Set("baseline", "1")
	}
	return query.Encode()
}

// block is one of the evaluations of a step of a run that promotes each policy alone: that of a
// version of Policy or, as its baseline, that of what was promoted before.
type block struct {
	Policy   string
	Baseline bool
	Text     string
	Path     string
	Shown    bool
	trials   []record.Trial
}

// blocksOf divides the attempts of a step between the evaluations that they belong to: those of
// versions in the order of the policies, then those of baselines. It returns nil if the step has
// one evaluation alone, as that of version 0, which all policies begin with.
func blocksOf(run record.Run, sp spec.Spec, trials []record.Trial) []block {
	var out []block
	for _, t := range trials { // by task
		policy, baseline, ok := blockAt(run, sp, t.RolloutID)
		if !ok {
			continue
		}
		if n := len(out); n == 0 || out[n-1].Policy != policy || out[n-1].Baseline != baseline {
			text := policy
			if baseline {
				text = "what " + policy + " was compared with"
			}
			out = append(out, block{Policy: policy, Baseline: baseline, Text: text, Path: stepPath(t.Run, t.Kind, t.Step) + "?" + blockQuery(policy, baseline)})
		}
		last := &out[len(out)-1]
		last.trials = append(last.trials, t)
	}
	return out
}

// blockAt returns the policy whose evaluation a rollout belongs to, and whether it is of the
// baseline. ok is false if its step has one evaluation alone.
func blockAt(run record.Run, sp spec.Spec, at record.RolloutID) (policy string, baseline, ok bool) {
	if at.Step == 0 || at.Kind != record.Gate && at.Kind != record.Test {
		return "", false, false
	}
	return sp.PolicyOfTask(at.Task, run.Splits[at.Kind].Count)
}

// stepLink returns the link from a rollout to its step, or to the evaluation that it belongs to.
func stepLink(run record.Run, at record.RolloutID) link {
	policy, baseline, ok := blockAt(run, specOf(run), at)
	if !ok {
		return link{Text: stepName(at.Kind, at.Step), Path: stepPath(at.Run, at.Kind, at.Step)}
	}
	return link{Text: blockName(at.Kind, at.Step, policy, baseline), Path: stepPath(at.Run, at.Kind, at.Step) + "?" + blockQuery(policy, baseline)}
}

// blockName returns the title of an evaluation of one of several policies.
func blockName(kind record.Kind, step int, policy string, baseline bool) string {
	if baseline {
		return fmt.Sprintf("What version %d%s was compared with on %s", step, ofPolicy(policy), kind)
	}
	return fmt.Sprintf("Version %d%s on %s", step, ofPolicy(policy), kind)
}

// chosenBlock returns the index of the block that a query asks for, 0 if it asks for none, and
// -1 if there is no such block.
func chosenBlock(all []block, query url.Values) int {
	if !query.Has("policy") {
		return 0
	}
	return slices.IndexFunc(all, func(b block) bool {
		return b.Policy == query.Get("policy") && b.Baseline == query.Has("baseline")
	})
}

// sampledFrom names the versions that an attempt of an evaluation sampled from, such as
// "checker@4, writer@2".
func (s *Server) sampledFrom(ctx context.Context, address record.Address) (string, error) {
	a, err := s.Records.Attempt(ctx, address)
	if err != nil {
		return "", err
	}
	versions := a.Terms.Versions()
	var parts []string
	for _, policy := range slices.Sorted(maps.Keys(versions)) {
		parts = append(parts, fmt.Sprintf("%s@%d", policy, versions[policy]))
	}
	return format.FirstLine(strings.Join(parts, ", ")), nil
}

// policyVersions returns the rows of the versions of each policy of a run that promotes each
// alone, the newest first.
func (s *Server) policyVersions(ctx context.Context, run record.Run, from, to int) ([]versionRow, error) {
	rows, _, err := s.policyLineages(ctx, run, from, to)
	return rows, err
}

// policyLineages returns these rows, and the records of each policy that they are made of.
func (s *Server) policyLineages(ctx context.Context, run record.Run, from, to int) (rows []versionRow, all []lineage, err error) {
	var evaluations []record.Evaluation
	for _, policy := range pointersOf(run) {
		l, err := s.lineage(ctx, run, policy, from, to)
		if err != nil {
			return nil, nil, err
		}
		all, evaluations = append(all, l), append(evaluations, l.evaluations...)
	}
	for i, policy := range pointersOf(run) {
		versions, err := s.Records.VersionsBetween(ctx, run.Name, policy, from, to)
		if err != nil {
			return nil, nil, err
		}
		all[i].others = evaluations
		for _, v := range versions {
			rows = append(rows, all[i].row(v))
		}
	}
	slices.SortStableFunc(rows, func(a, b versionRow) int { return cmp.Compare(b.Number, a.Number) })
	return rows, all, nil
}

// Reference returns a reference to the version for the page that compares two.
func (r versionRow) Reference() string {
	if r.Policy == "" || r.Policy == model.DefaultPolicy {
		return fmt.Sprint(r.Number)
	}
	return fmt.Sprintf("%s:%s@%d", r.Run, r.Policy, r.Number)
}

// OfPolicy returns the name of the policy of the version, if it is one of several.
func (r versionRow) OfPolicy() string {
	if evaluation.IsOwn(r.Policy) {
		return ""
	}
	return r.Policy
}
