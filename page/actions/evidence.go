package actions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
)

// evidence is what is known about the versions that an action would decide on.
type evidence struct {
	Gates []gate
	// Compare is the path of the page that compares the version with the promoted one. It
	// is empty if one of them is unknown or was not evaluated.
	Compare string
	// Back is the version that a rollback leads to if the form names none. It is nil if
	// there is no such version.
	Back *int
}

// gate is a version and its evaluation on the gate split.
type gate struct {
	Version         int
	Role            string // its part in the decision
	Known           bool   // true if it was evaluated
	Mean, Low, High float64
	Path            string // of the version
}

// setting is a key that can be set, and its value now.
type setting struct {
	Key   string
	Value string
}

// progress is how many steps a run has finished, of how many.
type progress struct {
	Finished, Planned int
	Needed            bool // a retry has to name more steps
}

// Least returns the smallest number of steps with which the run goes on.
func (p progress) Least() int { return p.Finished + 1 }

// progressOf returns how far a run is. It returns nil if the run has no steps, or a spec that
// can't be read.
func (p *Pages) progressOf(ctx context.Context, run record.Run) (*progress, error) {
	sp, err := spec.Stored(run.Spec)
	if err != nil || sp.Evaluation.Only != "" {
		return nil, nil
	}
	out := &progress{Needed: endedWell(run)}
	last, err := p.Records.LastStep(ctx, run.Name, model.DefaultPolicy)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return nil, err
	}
	out.Finished = last.Step
	acted, err := p.Records.Actions(ctx, run.Name, maxActions)
	out.Planned = report.PlannedSteps(sp.Training.Total(run.Splits[record.Train].Count), acted)
	return out, err
}

// evidence reads what is known about the version that the form names and about the
// promoted version.
func (p *Pages) evidence(ctx context.Context, of record.Run, k kind, b formBody) (evidence, error) {
	var out evidence
	run := of.Name
	fraction, err := p.Fractions(ctx, of)
	if err != nil {
		return out, err
	}
	base := strings.TrimSuffix(Path(run), "/actions") + "/versions"
	versions := []int{}
	if v, err := strconv.Atoi(strings.TrimSpace(b.Version)); err == nil && v >= 0 && (b.Promoted == nil || v != *b.Promoted) {
		versions = append(versions, v)
	}
	if k.Name == record.ActionRollback {
		history, err := p.Records.Promotions(ctx, run, promptsearch.PolicyOf(of))
		if err != nil {
			return out, err
		}
		if v, ok := record.Before(history); ok {
			out.Back = &v
			if len(versions) == 0 {
				versions = append(versions, v)
			}
		}
	}
	if b.Promoted != nil {
		versions = append(versions, *b.Promoted)
	}
	known := 0
	for _, v := range versions {
		g := gate{Version: v, Role: "named", Path: fmt.Sprintf("%s/%d", base, v)}
		switch {
		case b.Promoted != nil && v == *b.Promoted:
			g.Role = "promoted now"
		case out.Back != nil && v == *out.Back:
			g.Role = "the one before"
		case k.Name == record.ActionApprove || k.Name == record.ActionReject:
			g.Role = "waits for approval"
		}
		all, err := p.Records.EvaluationsBetween(ctx, run, promptsearch.PolicyOf(of), v, v+1)
		if err != nil {
			return out, err
		}
		for _, e := range all {
			if e.Kind == record.Gate {
				g.Known, g.Mean = true, e.Mean
				g.Low, g.High = curves.Interval(e.Mean, e.StdError, fraction)
				known++
			}
		}
		out.Gates = append(out.Gates, g)
	}
	if known == 2 {
		out.Compare = fmt.Sprintf("%s/compare?a=%d&b=%d&split=%s", base, versions[1], versions[0], record.Gate)
	}
	return out, nil
}

// settings returns the keys of a run that can be set, with the values that the next step
// will use. It knows only the values in recorded actions.
func (p *Pages) settings(ctx context.Context, run record.Run) ([]setting, error) {
	sp, err := spec.Stored(run.Spec)
	if err != nil {
		return nil, nil // of a spec that can't be read the run checks the keys
	}
	acted, err := p.Records.Actions(ctx, run.Name, maxActions)
	if err != nil {
		return nil, err
	}
	for _, a := range slices.Backward(acted) { // the oldest first
		if len(a.Input.Values) == 0 || a.Outcome != record.ActionDone { // set, or a retry that sets
			continue
		}
		if changed, err := sp.Set(a.Input.Values); err == nil {
			sp = changed
		}
	}
	values := sp.SettableValues()
	var out []setting
	for _, key := range sp.SettableKeys() {
		out = append(out, setting{key, strconv.FormatFloat(values[key], 'g', -1, 64)})
	}
	return out, nil
}
