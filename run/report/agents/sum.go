package agents

import (
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

// byTask holds a value of each attempt, by task.
type byTask map[int][]float64

func (b byTask) mean(of split) *evaluation.Estimate {
	values := make([][]float64, of.size)
	for task, samples := range b {
		values[task] = samples
	}
	return of.clusters.Mean(values)
}

// The values of an attempt that an agent has a reply in.
const (
	valueEarned = iota
	valueFirst
	valueFirstWithout
	valueLast
	valueLastWithout
	valuesOfAgent
)

// tally collects the replies of an agent.
type tally struct {
	Agent
	values [valuesOfAgent]byTask
}

// summed sums up the attempts of an evaluation, those at temperature 0 or the others.
func summed(e record.Evaluation, in split, of spec.Grader, greedy bool, all []attempt) Evaluation {
	out := Evaluation{Split: e.Kind, Version: e.Version, Greedy: greedy, Agents: []Agent{}}
	samples := e.Rollouts / max(e.Tasks, 1)
	earned := byTask{}
	var agents []*tally
	for _, a := range all {
		if greedy != (a.sample >= samples) {
			continue
		}
		out.Attempts++
		out.Ends.add(a.end)
		earned[a.task] = append(earned[a.task], a.reward)
		if a.ungraded != nil {
			out.Ungraded++
			if reason := a.ungraded.Error(); !slices.Contains(out.Reasons, reason) {
				out.Reasons = append(out.Reasons, reason)
			}
		}
		for _, r := range a.replies {
			agents = added(agents, a, r)
		}
	}
	out.Mean = earned.mean(in)
	for _, t := range agents {
		out.Agents = append(out.Agents, t.agent(in, of))
	}
	return out
}

// added adds the replies of an agent in an attempt to its tally.
func added(all []*tally, a attempt, r reply) []*tally {
	i := slices.IndexFunc(all, func(t *tally) bool { return t.Agent.Agent == r.by.Agent })
	if i < 0 {
		i, all = len(all), append(all, &tally{Agent: Agent{Agent: r.by.Agent, Source: string(r.by.Source)}})
		for k := range all[i].values {
			all[i].values[k] = byTask{}
		}
	}
	t := all[i]
	t.Attempts++
	t.Replies += r.count
	if a.ungraded != nil {
		return all
	}
	for k, value := range [valuesOfAgent]float64{a.reward, r.first.asWritten, r.first.withoutProse, r.last.asWritten, r.last.withoutProse} {
		t.values[k][a.task] = append(t.values[k][a.task], value)
	}
	return all
}

// agent returns the means of a tally.
func (t *tally) agent(in split, of spec.Grader) Agent {
	out := t.Agent
	out.Earned = t.values[valueEarned].mean(in)
	if !grading.GradesTexts(of) || out.Earned == nil {
		return out
	}
	out.First = &Reply{AsWritten: t.values[valueFirst].mean(in)}
	out.Last = &Reply{AsWritten: t.values[valueLast].mean(in)}
	if grading.KnowsProse(of) {
		out.First.WithoutProse, out.Last.WithoutProse = t.values[valueFirstWithout].mean(in), t.values[valueLastWithout].mean(in)
	}
	return out
}
