package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// TryStep is the step number of a trial: that of its attempts and of its batch.
const TryStep = 1

// TryInput asks for a few groups of a spec without training.
type TryInput struct {
	Training TrainingInput `json:"training"`
	Tasks    int           `json:"tasks"`
	// Indices are the tasks to try, by index in the train split. If there are none, the
	// first Tasks ones are tried.
	Indices []int `json:"indices,omitempty"`
	// Samples of each task; 0 is as many as the spec has.
	Samples int `json:"samples,omitempty"`
	// Twice runs each rollout a second time, as a later attempt that finds the
	// calls of the first on record.
	Twice bool `json:"twice,omitempty"`
}

// TryResult names the attempts of a trial and what their credit came to.
type TryResult struct {
	Groups []activities.Group `json:"groups"`
	// Again holds the second attempts at the same rollouts, in the same order.
	Again []activities.Group `json:"again,omitempty"`
	// Quarantined are the tasks of groups that could not be trained on.
	Quarantined []Quarantine `json:"quarantined,omitempty"`
	// Batch is the blob of the batch that a step of these groups would be trained on;
	// empty if none could be made.
	Batch string `json:"batch,omitempty"`
	// Reflection is what the reflector made of the attempts, if the spec has one.
	Reflection *activities.TryReflectorResult `json:"reflection,omitempty"`
	// LeftOut lists why groups would be left out of the batch.
	LeftOut []string `json:"left_out,omitempty"`
	// Failure is the error that would end a run, or why a step would have nothing to
	// train. Phase is where it occurred.
	Failure string   `json:"failure,omitempty"`
	Phase   TryPhase `json:"phase,omitempty"`
}

// TryPhase is a part of a trial.
type TryPhase string

// The phases.
const (
	TryPrepares TryPhase = "prepare" // the spec, and version 0
	TryRollouts TryPhase = "rollouts"
	TryCredit   TryPhase = "credit"
	// TryReflection asks the reflector of a search for better prompts.
	TryReflection TryPhase = "reflection"
)

// TryWorkflow prepares a run as TrainingWorkflow does, runs the groups of some tasks at
// version 0 and assigns their credit with the activities of a training step or, if the spec
// searches for better prompts, asks its reflector once. `fulgurite
// try` shows the result. An error that would end a run is part of the result.
func TryWorkflow(ctx workflow.Context, in TryInput) (TryResult, error) {
	t := newTrainingRun(ctx, nil)
	t.tries = true
	var out TryResult
	err := t.prepare(ctx, in.Training)
	if err == nil {
		err = t.initPolicy(ctx)
	}
	if err != nil {
		return out.ended(TryPrepares, err)
	}
	g, err := t.tryGroups(ctx, in, &out)
	if err != nil {
		return out.ended(TryRollouts, err)
	}
	if len(g.results) == 0 {
		return out, nil
	}
	if t.Spec.Optimizer != nil {
		return t.tryReflector(ctx, g, out)
	}
	batch, err := t.credit(ctx, g)
	if err != nil {
		return out.ended(TryCredit, err)
	}
	if out.LeftOut = batch.LeftOut; batch.Idle != "" {
		out.Failure, out.Phase = batch.Idle, TryCredit
		return out, nil
	}
	out.Batch = batch.Batch
	return out, nil
}

// tryReflector asks the reflector once, about the attempts of the trial.
func (t *trainingRun) tryReflector(ctx workflow.Context, g *stepGroups, out TryResult) (TryResult, error) {
	var c *activities.Coordinator
	var r activities.TryReflectorResult
	err := workflow.ExecuteActivity(judging(ctx, "a new text of a prompt"), c.TryReflector, activities.TryReflectorInput{
		StepGroups: activities.StepGroups{Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups()},
	}).Get(ctx, &r)
	if err != nil {
		return out.ended(TryReflection, err)
	}
	out.Reflection = &r
	return out, nil
}

// tryGroups runs the groups and returns those that credit can be assigned to.
func (t *trainingRun) tryGroups(ctx workflow.Context, in TryInput, out *TryResult) (*stepGroups, error) {
	g := &stepGroups{step: TryStep, samples: t.Spec.Training.SamplesPerTask}
	if in.Samples > 0 {
		g.samples = in.Samples
	}
	indices := in.Indices
	if len(indices) == 0 {
		for i := range min(in.Tasks, t.Splits[record.Train].Count) {
			indices = append(indices, i)
		}
	}
	for _, index := range indices {
		name := rolloutID(t.Run, record.Try, TryStep, index)
		r, err := t.try(ctx, name, g, index)
		if err != nil {
			return g, err
		}
		out.Groups = append(out.Groups, r.Group)
		if r.Quarantine != "" {
			out.Quarantined = append(out.Quarantined, Quarantine{Index: index, Step: TryStep, Reason: r.Quarantine})
		} else {
			g.results = append(g.results, r)
		}
		if !in.Twice {
			continue
		}
		if r, err = t.try(ctx, name+"/again", g, index); err != nil {
			return g, err
		}
		out.Again = append(out.Again, r.Group)
	}
	return g, nil
}

// try runs the group of a task, as the workflow with the id name.
func (t *trainingRun) try(ctx workflow.Context, name string, g *stepGroups, task int) (RolloutResult, error) {
	in := RolloutInput{
		Run: t.Run, Kind: record.Try, Step: g.step, Task: task, Index: task, Policy: model.DefaultPolicy, Samples: g.samples,
	}
	in.Agent, in.Grader = forChildren(t.Spec)
	r, err := runChild[RolloutResult](ctx, name, rolloutSummary(in), RolloutWorkflow, in)
	r.Group.Kind = record.Try
	return r, err
}

// ended returns the result of a trial that an error ended, unless the trial was
// cancelled.
func (r TryResult) ended(phase TryPhase, err error) (TryResult, error) {
	if temporal.IsCanceledError(err) {
		return r, err
	}
	r.Phase = phase
	_, r.Failure = failure(err)
	return r, nil
}
