package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

// ended returns the progress of a run that has ended, or whose workflow can't be asked,
// from its records: those of its steps, evaluations and attempts. A workflow that has
// ended answers only as long as Temporal keeps it and a worker is there.
func ended(ctx context.Context, db *store.Store, run record.Run, sp spec.Spec, steps []record.Step) (*workflows.Progress, error) {
	p := workflows.Progress{
		Run: run.Name, Phase: phaseOf(run.Status), Stop: run.Stop(),
		Steps: sp.Training.Total(run.Splits[trace.Train].Count),
	}
	var result workflows.TrainingResult
	if len(run.Result) > 0 && json.Unmarshal(run.Result, &result) == nil { // a failure has other keys
		p.Before, p.After = result.Before, result.After
	}
	moved, err := db.Promoted(ctx, run.Name, model.DefaultPolicy)
	switch {
	case err == nil:
		p.Promoted = moved.Version
	case !errors.Is(err, trace.ErrNotFound):
		return nil, fmt.Errorf("read the promoted version: %w", err)
	}
	switch {
	case run.Status == record.Running:
		p.Subject = "Temporal can't be asked"
	case run.Failure().Error != "":
		p.Subject = run.Failure().Error
	default:
		p.Subject = fmt.Sprintf("version %d is promoted", p.Promoted)
	}
	if err := addCurve(ctx, db, &p, steps); err != nil {
		return nil, err
	}
	p.Started = p.Step
	return &p, addTotals(ctx, db, &p)
}

// phaseOf returns the phase in which a run with a status is.
func phaseOf(s record.Status) workflows.Phase {
	switch s {
	case record.Completed, record.Stopped:
		return workflows.PhaseFinished
	case record.Cancelled:
		return workflows.PhaseCancelled
	case record.Running:
		return workflows.PhaseUnknown
	}
	return workflows.PhaseFailed
}

// addCurve adds the finished steps.
func addCurve(ctx context.Context, db *store.Store, p *workflows.Progress, steps []record.Step) error {
	evaluations, err := db.Evaluations(ctx, p.Run)
	if err != nil {
		return fmt.Errorf("read the evaluations: %w", err)
	}
	gate := map[int]float64{}
	for _, e := range evaluations {
		if e.Kind == trace.Gate {
			gate[e.Version] = e.Mean
		}
	}
	for _, s := range steps {
		point := workflows.CurvePoint{Step: s.Step, Reward: s.Metrics["reward/mean"]}
		if mean, ok := gate[s.Step]; ok {
			point.Gate = &mean
		}
		p.Curve, p.Step = append(p.Curve, point), s.Step
	}
	return nil
}

// addTotals counts what the finished steps did, and the tasks that were quarantined.
func addTotals(ctx context.Context, db *store.Store, p *workflows.Progress) error {
	trials, err := db.Trials(ctx, p.Run, model.DefaultPolicy)
	if err != nil {
		return fmt.Errorf("read the attempts: %w", err)
	}
	for _, t := range trials {
		trained := (t.Kind == trace.Train || t.Kind == trace.Reserve) && t.Step <= p.Step
		if !trained || t.Outcome != trace.Completed && t.Outcome != trace.AgentFailed {
			continue
		}
		p.Calls += t.Calls
		p.Tokens += t.Tokens
		if t.Outcome == trace.AgentFailed {
			p.Failed++
		}
	}
	quarantines, err := db.Quarantines(ctx, p.Run, model.DefaultPolicy)
	if err != nil {
		return fmt.Errorf("read the quarantined tasks: %w", err)
	}
	tasks := map[int]bool{}
	for _, q := range quarantines {
		if q.Step <= p.Step {
			tasks[q.Index] = true
		}
	}
	p.Quarantined = len(tasks)
	return nil
}
