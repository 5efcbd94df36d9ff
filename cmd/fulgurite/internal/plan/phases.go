package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Phase describes one of the runs of a spec with phases.
type Phase struct {
	Number int    `json:"number"` // from 1
	Type   string `json:"type"`
	Steps  int    `json:"steps,omitempty"`
	// Rollouts are those to train on, or the most of a search.
	Rollouts int `json:"rollouts"`
	Gates    int `json:"gate_evaluations"`
	// Reflections is the most requests to the reflector.
	Reflections int `json:"reflections,omitempty"`
}

// ofPhases makes the plan of a spec with phases. What a phase starts from is not known before:
// each is planned as if it began with the weights and the texts of the spec. plan makes the
// plan of one run.
func ofPhases(ctx context.Context, sp spec.Spec, plan func(context.Context, spec.Spec) (Plan, error)) (Plan, error) {
	sp, err := sp.ReadPrompts()
	if err != nil {
		return Plan{}, terminal.Usage(err)
	}
	var out Plan
	byType := map[string]Plan{}
	for i, p := range sp.Phases {
		of := sp.PhaseSpec(i+1, spec.PhaseStart{}).WithDefaults()
		first, planned := byType[p.Type]
		if !planned {
			if first, err = plan(ctx, of); err != nil {
				return first, fmt.Errorf("phase %d: %w", i+1, err)
			}
			byType[p.Type] = first
		}
		phase, err := first.phase(of)
		if err != nil {
			return first, terminal.Usage(fmt.Errorf("phase %d: %w", i+1, err))
		}
		phase.Number, phase.Type = i+1, p.Type
		out.Phases = append(out.Phases, phase)
	}
	phases := out.Phases
	for _, kind := range []string{spec.PhaseWeights, spec.PhasePrompts} { // the first says what the runs take
		of, ok := byType[kind]
		if !ok {
			continue
		}
		if out.Tasks == nil {
			out = of
			continue
		}
		out.Tasks = of.Tasks // a search has those of validation, too
		for _, text := range of.Shared {
			if !slices.Contains(out.Shared, text) {
				out.Shared = append(out.Shared, text)
			}
		}
		for _, text := range of.Warnings {
			if !slices.Contains(out.Warnings, text) {
				out.Warnings = append(out.Warnings, text)
			}
		}
	}
	out.Phases, out.Search = phases, nil
	return out.sum(sp), nil
}

// CheckName returns an error if phases of that name would have runs whose names are not
// possible.
func (p Plan) CheckName(name string) error {
	n := len(p.Spec.Phases)
	if n == 0 {
		return nil
	}
	if err := record.CheckRunName(spec.PhaseName(name, n, p.Spec.Phases[n-1])); err != nil {
		return terminal.Usagef("give a shorter name than %s, because the runs of phases are named after it: %w", name, err)
	}
	return nil
}

// phase returns how much a phase does, whose spec differs from that of p only in its numbers.
func (p Plan) phase(s spec.Spec) (Phase, error) {
	if o := s.Optimizer; o != nil {
		if _, err := optimize.Of(withTexts(s), p.Tasks[record.Train], p.Tasks[record.Validation]); err != nil {
			return Phase{}, err
		}
		return Phase{Rollouts: o.Budget.Minibatch + o.Budget.Validation + p.gateRollouts(), Gates: gatesOfSearch, Reflections: o.Budget.Reflections}, nil
	}
	steps := s.Training.Total(p.Tasks[record.Train])
	return Phase{
		Steps: steps, Rollouts: steps * s.Training.TasksPerStep * s.Training.SamplesPerTask, Gates: 1 + (steps+s.Evaluation.Every-1)/s.Evaluation.Every,
	}, nil
}

// sum makes p, which is the plan of one phase, that of all phases of a spec.
func (p Plan) sum(of spec.Spec) Plan {
	p.Digest, p.Spec, p.Steps, p.Rollouts, p.Gates, p.Epochs = spec.Digest(of), of, 0, 0, 0, 0
	for _, phase := range p.Phases {
		p.Steps, p.Gates = p.Steps+phase.Steps, p.Gates+phase.Gates
		if phase.Type != spec.PhaseWeights {
			continue
		}
		if p.Rollouts > 0 { // the first is in the sizes already
			n := kept(of.Training, phase.Steps, phase.Gates)
			p.Sizes.Kept, p.Sizes.Disk = p.Sizes.Kept+n, p.Sizes.Disk+int64(n)*p.Sizes.Version
		}
		p.Rollouts += phase.Rollouts
	}
	if n := p.Tasks[record.Train]; n > 0 {
		p.Epochs = float64(p.Steps*of.Training.TasksPerStep) / float64(n)
	}
	return p
}

// phaseLines describes the runs of a spec with phases.
func (p Plan) phaseLines() []planLine {
	s := p.Spec
	var out []planLine
	line := func(label, format string, args ...any) {
		out = append(out, planLine{label, fmt.Sprintf(format, args...)})
	}
	if s.Optimizer != nil {
		line("search", "%s", searchOf(*s.Optimizer))
		line("reflector", "%s", reflectorOf(s.Optimizer.Reflector))
	}
	if p.Steps > 0 {
		tr := s.Training
		line("a step", "%s × %s = %s, then %s", readable.Count(tr.TasksPerStep, "task"), readable.Count(tr.SamplesPerTask, "sample"),
			readable.Count(tr.TasksPerStep*tr.SamplesPerTask, "rollout"), updatesOf(tr))
		out = append(out, learning(s)...)
	}
	for _, phase := range p.Phases {
		label := fmt.Sprintf("phase %d", phase.Number)
		if phase.Type == spec.PhasePrompts {
			line(label, "prompts: at most %s and %s to the reflector", readable.Count(phase.Rollouts, "rollout"), readable.Count(phase.Reflections, "request"))
			continue
		}
		line(label, "weights: %s, %s", readable.Count(phase.Steps, "step"), readable.Count(phase.Rollouts, "rollout"))
	}
	line("promotion", "%d evaluations of the gate split; what a phase promotes must be better by more than %g%s", p.Gates, s.Promotion.Margin, p.evidence())
	return out
}
