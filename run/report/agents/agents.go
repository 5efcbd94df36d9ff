// Package agents tells what each named agent of a run contributed to its evaluations: the
// reward of what the agent said by itself, and how attempts ended. It is about the first
// evaluation of each split, and about the newest and the promoted version.
//
// A reward may grow because a policy says better things, or because an agent delivers more
// of what the policy said before. The two look alike in the mean of an evaluation. So
// replies are graded again, by the run's own grader, as if each were the result of its
// attempt: as it is written, and without the prose around it.
//
// The package runs no agent, no model and no program: with graders that need more than a
// text it grades nothing and says so. It writes nothing. What can't be graded again, since
// a database is not there, is named and left out.
package agents

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/grading"
)

// Report has the contributions of the agents of a run. The keys of its JSON are a public
// contract.
type Report struct {
	Grader string `json:"grader"`
	// NotGraded says why replies can't be graded by themselves; empty if they can.
	NotGraded string `json:"not_graded,omitempty"`
	// Level is the probability that an interval contains the mean over all tasks that could
	// have been drawn.
	Level float64 `json:"level"`
	// Cluster is the key of the tasks' metadata by whose values the intervals are; empty if
	// they are by task.
	Cluster     string       `json:"cluster,omitempty"`
	Evaluations []Evaluation `json:"evaluations"`
}

// Evaluation is about the attempts of an evaluation, either those at the temperature of
// the spec or those at temperature 0.
type Evaluation struct {
	Split   record.Kind `json:"split"`
	Version int         `json:"version"`
	Greedy  bool        `json:"greedy"` // at temperature 0
	// Attempts is how many have a reward. The others are left out.
	Attempts int `json:"attempts"`
	// Mean is the mean reward of the attempts.
	Mean   *evaluation.Estimate `json:"mean"`
	Ends   Ends                 `json:"ends"`
	Agents []Agent              `json:"agents"` // in the order in which they first speak
	// Ungraded counts the attempts whose replies could not be graded again, and Reasons
	// says why, each reason once.
	Ungraded int      `json:"ungraded,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
}

// Ends counts attempts by how they ended. Each attempt is in the first class that it
// belongs to.
type Ends struct {
	// Right counts the attempts whose reward is a success.
	Right int `json:"right"`
	// Prose counts those whose result is a success once the prose around it is removed.
	Prose int `json:"prose"`
	// NoReply counts those without a model call on record.
	NoReply int `json:"no_reply"`
	// CutOff counts those with a reply that ended at a limit of tokens.
	CutOff int `json:"cut_off"`
	// Failed counts those whose agent failed.
	Failed int `json:"failed"`
	// NoToolCall counts those that offered tools, but in whose replies no tool call could be
	// read.
	NoToolCall int `json:"no_tool_call"`
	// Wrong counts all others.
	Wrong int `json:"wrong"`
}

// Agent is an agent by name, with the rewards of its replies.
type Agent struct {
	Agent string `json:"agent"`
	// Source is what shows the name of its first reply, an attribution.Source.
	Source string `json:"agent_source"`
	// Attempts is how many attempts have a reply of it. All means below are over these
	// attempts, apart from those that could not be graded again.
	Attempts int `json:"attempts"`
	Replies  int `json:"replies"` // of all attempts
	// Earned is the mean reward of the attempts themselves.
	Earned *evaluation.Estimate `json:"earned"`
	First  *Reply               `json:"first,omitempty"` // nil if replies can't be graded by themselves
	Last   *Reply               `json:"last,omitempty"`
}

// Reply has the mean rewards of a reply that each attempt has, as if it were the result.
type Reply struct {
	AsWritten *evaluation.Estimate `json:"as_written"`
	// WithoutProse is without a code fence and the prose around the answer; nil if the
	// grader has no rule for that.
	WithoutProse *evaluation.Estimate `json:"without_prose,omitempty"`
}

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

// maxReasons is how many reasons a text has for what could not be graded again.
const maxReasons = 5

// unknown stands for an agent whose requests can't be read.
const unknown = "unknown"

// page writes the lines of a text.
type page struct{ readable.Lines }

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	p := &page{readable.Lines{W: w}}
	p.Line("\nReplies of each agent by themselves, as if they were the results; intervals of %g %%, by resampling %s", 100*r.Level, cmp.Or(r.Cluster, "tasks"))
	if r.NotGraded != "" {
		p.Line("  %s", r.NotGraded)
	}
	if len(r.Evaluations) == 0 {
		p.Line("  no evaluation is on record")
	}
	for _, e := range r.Evaluations {
		p.evaluation(e)
	}
	return p.Err
}

func (p *page) evaluation(e Evaluation) {
	temperature := ""
	if e.Greedy {
		temperature = ", at temperature 0"
	}
	p.Line("\n  version %d on %s%s: %s, mean reward %s", e.Version, e.Split, temperature, readable.Count(e.Attempts, "attempt"), e.Mean)
	p.Line("    %s", e.Ends.text(e.Attempts))
	if e.Ungraded > 0 {
		p.Line("    the replies of %s can't be graded again:", readable.Count(e.Ungraded, "attempt"))
		for _, reason := range e.Reasons[:min(len(e.Reasons), maxReasons)] {
			p.Line("      %s", reason)
		}
		if more := len(e.Reasons) - maxReasons; more > 0 {
			p.Line("      … and %d more; --json has all", more)
		}
	}
	if len(e.Agents) == 0 {
		return
	}
	width := len(unknown)
	for _, a := range e.Agents {
		width = max(width, len(a.Agent))
	}
	p.Line("    %-*s  %-5s  %8s  %-20s  %-20s  %-20s", width, "agent", "reply", "attempts", "as written", "without prose", "the attempts")
	for _, a := range e.Agents {
		p.row(width, a, "first", a.First)
		if a.Last != nil && a.Replies > a.Attempts {
			p.row(width, a, "last", a.Last)
		}
	}
}

func (p *page) row(width int, a Agent, which string, r *Reply) {
	if r == nil {
		r, which = &Reply{}, ""
	}
	p.Line("    %-*s  %-5s  %8d  %-20s  %-20s  %-20s", width, cmp.Or(a.Agent, unknown), which, a.Attempts, orNone(r.AsWritten), orNone(r.WithoutProse), orNone(a.Earned))
}

func orNone(e *evaluation.Estimate) string {
	if e == nil {
		return "-"
	}
	return e.String()
}

// text returns the classes that have attempts, with their shares.
func (e Ends) text(all int) string {
	var out []string
	for _, one := range []struct {
		name  string
		count int
	}{
		{"right", e.Right}, {"prose around a right answer", e.Prose}, {"no reply", e.NoReply}, {"cut off", e.CutOff}, {"agent failed", e.Failed},
		{"no tool call read", e.NoToolCall}, {"wrong otherwise", e.Wrong},
	} {
		if one.count > 0 {
			out = append(out, fmt.Sprintf("%s %d (%.0f %%)", one.name, one.count, 100*float64(one.count)/float64(all)))
		}
	}
	return strings.Join(out, ", ")
}
