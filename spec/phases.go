package spec

import (
	"cmp"
	"fmt"
	"slices"
)

// Values of a phase's type.
const (
	PhasePrompts = "prompts"
	PhaseWeights = "weights"
)

// maxPhases bounds the phases of a spec.
const maxPhases = 20

// Phase improves the prompts or trains the weights of an agent, in a run of its own.
type Phase struct {
	// Type says what the phase improves: "prompts", by the search of optimizer, or
	// "weights", by training.
	Type string `json:"type"`
	// Budget is what the search of the phase may use at most. Only with type "prompts".
	Budget *PhaseBudget `json:"budget,omitempty"`
	// Steps is the number of steps of the phase. Absent means what training says. Only with
	// type "weights".
	Steps int `json:"steps,omitempty"`
}

// PhaseBudget is what the search of a phase may use at most. A number that is absent is that
// of optimizer.budget.
type PhaseBudget struct {
	// Minibatch is the largest number of rollouts on minibatches of tasks.train.
	Minibatch int `json:"minibatch,omitempty"`
	// Validation is the largest number of rollouts on tasks.validation.
	Validation int `json:"validation,omitempty"`
	// Reflections is the largest number of requests to the reflector.
	Reflections int `json:"reflections,omitempty"`
}

// PhaseStart has the versions that a phase starts from, each written RUN@NUMBER. One that is
// empty is what the spec itself starts from.
type PhaseStart struct {
	Weights string `json:"weights,omitempty"`
	Prompts string `json:"prompts,omitempty"`
}

// PhaseName returns the name of the run of a phase, whose number counts from 1.
func PhaseName(name string, number int, p Phase) string {
	return fmt.Sprintf("%s-%d-%s", name, number, p.Type)
}

// PhaseSpec returns the spec of the run of a phase, whose number counts from 1. It has none of
// the keys that only the other type of phase needs. The spec has its defaults or none of
// them, and so does the result.
func (s Spec) PhaseSpec(number int, from PhaseStart) Spec {
	p, both := s.Phases[number-1], s.hasPhase(PhasePrompts) && s.hasPhase(PhaseWeights)
	s.Name, s.Phases = "", nil
	if from.Weights != "" {
		s.Model = Model{Engine: s.Model.Engine, Codec: s.Model.Codec, Version: from.Weights}
		s.Policies = s.PoliciesOfVersion()
	}
	if from.Prompts != "" && s.Prompts != nil {
		prompts := *s.Prompts // the caller's prompts do not change
		prompts.Version, prompts.Digest = from.Prompts, ""
		s.Prompts = &prompts
	}
	if p.Type == PhaseWeights {
		s.Optimizer = nil
		if both {
			s.Tasks.Validation = ""
		}
		if p.Steps != 0 {
			s.Training.Steps, s.Training.Epochs = p.Steps, 0
		}
		return s
	}
	if both {
		s.Algorithm, s.Training, s.Credit, s.Loss, s.Critic, s.Model.WarmStart = "", Training{}, Credit{}, Loss{}, nil, nil
		s.Evaluation.Every = 0
	}
	if o := s.Optimizer; o != nil {
		o := *o // the caller's optimizer does not change
		b := *cmp.Or(p.Budget, &PhaseBudget{})
		o.Budget.Minibatch = cmp.Or(b.Minibatch, o.Budget.Minibatch)
		o.Budget.Validation = cmp.Or(b.Validation, o.Budget.Validation)
		o.Budget.Reflections = cmp.Or(b.Reflections, o.Budget.Reflections)
		s.Optimizer = &o
	}
	return s
}

func (s Spec) hasPhase(kind string) bool {
	return slices.ContainsFunc(s.Phases, func(p Phase) bool { return p.Type == kind })
}

// checkPhases reports the faults of a spec with phases, whose defaults must be filled in:
// those of its phases, and those of the spec that each phase runs.
func (s Spec) checkPhases(f *Faults) {
	s.checkName(f)
	if n := len(s.Phases); n > maxPhases {
		f.add("phases", fmt.Sprintf("give at most %d", maxPhases), "%d phases", n)
		return
	}
	if longest := PhaseName(s.Name, len(s.Phases), Phase{Type: PhasePrompts}); s.Name != "" && len(longest) > maxNameBytes {
		f.add("name", fmt.Sprintf("give at most %d characters", maxNameBytes-len(longest)+len(s.Name)), "the runs of phases are named after it, such as %s", longest)
	}
	if s.Evaluation.Only != "" {
		f.unused("evaluation.only", true, "with phases the spec trains or searches")
		return
	}
	if s.Tasks.Gate == "" {
		f.add("tasks.gate", "give a source of tasks that no other split has", "missing, and without it no phase promotes what the next could start from")
	}
	if s.Optimizer == nil && s.hasPhase(PhasePrompts) {
		f.add("optimizer", `give it, or leave out the phases of type "prompts"`, "missing, and they search as it says")
	}
	if s.Promotion.Alone {
		f.add("promotion.alone", "leave it out, or leave phases out", "not with phases: the next phase starts from one version of all policies")
	}
	f.unused("optimizer", s.Optimizer != nil && !s.hasPhase(PhasePrompts), `there is no phase of type "prompts"`)
	for i, p := range s.Phases {
		p.check(f, fmt.Sprintf("phases[%d]", i), s)
	}
	for i, p := range s.Phases {
		of := s.PhaseSpec(i+1, PhaseStart{})
		switch {
		case p.Type == PhaseWeights:
			if of.Training.Steps == 0 && of.Training.Epochs == 0 {
				of.Training.Steps = 1 // it is reported already
			}
			f.join(of.Trainable())
		case p.Type != PhasePrompts || s.Optimizer == nil:
			continue // reported already
		default:
			b := &of.Optimizer.Budget // a number that is missing is reported already
			b.Minibatch, b.Validation, b.Reflections = cmp.Or(b.Minibatch, 1), cmp.Or(b.Validation, 1), cmp.Or(b.Reflections, 1)
		}
		f.join(of.Validate())
	}
}

func (p Phase) check(f *Faults, key string, of Spec) {
	if p.Type == "" {
		f.add(key+".type", `give "prompts" or "weights"`, "missing")
		return
	}
	if p.Type != PhasePrompts && p.Type != PhaseWeights {
		f.add(key+".type", `give "prompts" or "weights"`, "unknown name %q", p.Type)
		return
	}
	f.unused(key+".steps", p.Steps != 0 && p.Type != PhaseWeights, `only a phase of type "weights" has steps`)
	f.unused(key+".budget", p.Budget != nil && p.Type != PhasePrompts, `only a phase of type "prompts" has one`)
	if p.Type == PhaseWeights {
		if p.Steps == 0 && of.Training.Steps == 0 && of.Training.Epochs == 0 {
			f.add(key+".steps", "give it, or training.steps for all such phases", "missing")
		}
		f.whole(key+".steps", p.Steps, 0, 1e9)
		return
	}
	if of.Optimizer == nil {
		return
	}
	b, all := *cmp.Or(p.Budget, &PhaseBudget{}), of.Optimizer.Budget
	for _, purpose := range []struct {
		name        string
		own, shared int
	}{
		{"minibatch", b.Minibatch, all.Minibatch}, {"validation", b.Validation, all.Validation}, {"reflections", b.Reflections, all.Reflections},
	} {
		if purpose.own == 0 && purpose.shared == 0 {
			f.add(key+".budget."+purpose.name, "give it, or optimizer.budget."+purpose.name+" for all such phases", "missing")
		}
		f.whole(key+".budget."+purpose.name, purpose.own, 0, 1e9)
	}
}
