package curriculum

import (
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// Evidence is the part of a run's record on which the choice of a step may depend. It may
// also contain results of steps that were not certainly finished when the step began;
// these have no effect.
type Evidence struct {
	Spec  spec.Spec // with defaults filled in
	Tasks []tasks.Task
	// Parts holds how many tasks each of Spec.TrainSources has; nil if there is one
	// source.
	Parts       []int
	Scores      []record.StepScore
	Quarantines []record.Quarantine
	Evaluations []record.Evaluation
	// Before is the choice of the step before, if there is one.
	Before *record.Choice
}

// Choose decides which tasks a step attempts. Its errors name what to change.
func (e Evidence) Choose(step int) (record.Choice, error) {
	pool, err := NewPool(e.Spec, e.Tasks, e.Parts)
	if err != nil {
		return record.Choice{}, err
	}
	t := e.Spec.Training
	in := Input{
		Curriculum: *t.Curriculum, Pool: pool, Seed: e.Spec.Seed, Step: step, Steps: t.Total(len(e.Tasks)),
		Places: t.TasksPerStep, Reserves: Reserves(t), Finished: Finished(t, step), Quarantined: map[int]bool{}, Before: e.Before,
	}
	quarantined := map[Group]bool{}
	for _, q := range e.Quarantines {
		if q.Step <= in.Finished {
			quarantined[Group{q.Step, q.Kind, q.Task}] = true
			in.Quarantined[q.Index] = true
		}
	}
	first, last := Window(in.Curriculum, in.Finished, step, e.Before)
	var scores []record.StepScore
	for _, s := range e.Scores {
		if s.Step >= first && s.Step <= last {
			scores = append(scores, s)
		}
	}
	index := make(map[string]int, len(e.Tasks))
	for i, task := range e.Tasks {
		index[task.ID] = i
	}
	in.Results = Results(scores, index, quarantined, e.Spec.Evaluation.SuccessThreshold())
	for _, of := range e.Evaluations {
		if of.Kind == trace.Gate {
			in.Evaluations = append(in.Evaluations, of.EvaluationResult)
		}
	}
	return Choose(in)
}
