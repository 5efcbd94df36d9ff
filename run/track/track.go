// Package track turns the record of a run into what programs like TensorBoard, trackio and
// wandb show: numbers with names, a step and a time. Follow keeps a tracker up to date
// while a run goes on, or brings it up to date once.
//
// It is not the record, and computes no metric: it only reads the store, and every number
// that it writes is on record. It writes nothing itself; a [Writer] does. The packages
// below it are the writers.
//
// What a tracker gets is a list of entries. You may rely on this:
//
//   - An entry is written whole or not at all, and the values of an entry never change.
//   - Steps, versions and times come from the record, so they do not depend on when a
//     follower runs. Readers of one record return the same entries.
//   - If a run promotes each of several policies alone, evaluations and moves have the name
//     of their policy, such as evaluation/writer/gate/mean. So no series has those of two.
//   - Entries of one name come with growing steps, so that trackers that expect this show
//     all of them. Only moves of the promoted version may have the same step.
//   - The names and steps of the entries that were written determine a [Position]. So a
//     writer that can list what it has needs to keep no other state.
package track

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// The names of values and texts that are not metrics of a step. Metrics have the names of
// the record. No metric begins with these.
const (
	// SpecName is the name under which a tracker has the spec of a run.
	SpecName = "spec"
	// RewardName is the reward of a step, over all its rollouts.
	RewardName = "reward"

	evaluationPrefix = "evaluation/" // then the policy if it is one of several, the split, and mean, std_error or greedy
	promotedPrefix   = "promoted/"   // then the policy if it is one of several, and version or reason
	meanSuffix       = "/mean"
	versionName      = "version"
	reasonName       = "reason"
)

// Value is a number with its name.
type Value struct {
	Name   string
	Number float64
}

// Text is a text with its name.
type Text struct {
	Name string
	Text string
}

// Entry is what a tracker gets at once: the spec of a run, all metrics of a step, an
// evaluation, or a move of the promoted version.
type Entry struct {
	Step   int // training step, or number of the version
	Time   time.Time
	Values []Value // by name
	Texts  []Text
	// Spec is the spec as JSON, without secrets. Only the first entry of a run has it.
	Spec json.RawMessage
}

// Names returns the names of all that e has.
func (e Entry) Names() []string {
	var names []string
	if e.Spec != nil {
		names = append(names, SpecName)
	}
	for _, v := range e.Values {
		names = append(names, v.Name)
	}
	for _, t := range e.Texts {
		names = append(names, t.Name)
	}
	return names
}

// Mark returns one of the names of e that says as much to a Position as all of them.
func (e Entry) Mark() string {
	names := e.Names()
	for _, name := range names {
		if name == SpecName {
			return name
		}
		if _, ok := moveOf(name); ok {
			return name
		}
		if _, _, ok := evaluationOf(name); ok {
			return name
		}
	}
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// Evaluation returns which evaluation e is, if it is one.
func (e Entry) Evaluation() (Evaluated, bool) {
	for _, name := range e.Names() {
		if policy, kind, ok := evaluationOf(name); ok {
			return Evaluated{Policy: policy, Kind: kind, Version: e.Step}, true
		}
	}
	return Evaluated{}, false
}

// IsStep reports whether e has the metrics of a training step.
func (e Entry) IsStep() bool {
	if _, move := moveOf(e.Mark()); move || e.Spec != nil || e.Step == 0 {
		return false
	}
	_, evaluation := e.Evaluation()
	return !evaluation
}

// moveOf returns the policy whose promoted version has a name.
func moveOf(name string) (policy string, ok bool) {
	rest, ok := strings.CutPrefix(name, promotedPrefix)
	if !ok {
		return "", false
	}
	if rest == versionName {
		return model.DefaultPolicy, true
	}
	return strings.CutSuffix(rest, "/"+versionName)
}

// evaluationOf returns the policy and the split whose mean reward has a name.
func evaluationOf(name string) (policy string, kind record.Kind, ok bool) {
	rest, ok := strings.CutPrefix(name, evaluationPrefix)
	if !ok {
		return "", "", false
	}
	split, ok := strings.CutSuffix(rest, meanSuffix)
	if policy, of, named := strings.Cut(split, "/"); named {
		return policy, record.Kind(of), ok
	}
	return model.DefaultPolicy, record.Kind(split), ok
}

// Evaluated names an evaluation.
type Evaluated struct {
	Policy  string
	Kind    record.Kind
	Version int
}

// Position says which entries of a run a tracker has. The zero value is a tracker without
// any.
type Position struct {
	// Spec is true if it has the spec.
	Spec bool
	// Start is true if it has the metrics of version 0, if there are any.
	Start bool
	// Step is the last step whose metrics it has, 0 if there is none. It has those of all
	// steps before.
	Step        int
	Evaluations []Evaluated
	// Moves are how many moves of the promoted version it has, by policy.
	Moves map[string]int
}

// Add notes that the tracker has the entry with a step and names.
func (p *Position) Add(step int, names []string) {
	for _, name := range names {
		if name == SpecName {
			p.Spec = true
			return
		}
		if policy, ok := moveOf(name); ok {
			if p.Moves == nil {
				p.Moves = map[string]int{}
			}
			p.Moves[policy]++
			return
		}
		if policy, kind, ok := evaluationOf(name); ok {
			p.Evaluations = append(p.Evaluations, Evaluated{Policy: policy, Kind: kind, Version: step})
			return
		}
	}
	if len(names) == 0 {
		return
	}
	if step == 0 {
		p.Start = true
	}
	p.Step = max(p.Step, step)
}

// Clone returns a copy of p that shares nothing with it.
func (p Position) Clone() Position {
	p.Evaluations, p.Moves = slices.Clone(p.Evaluations), maps.Clone(p.Moves)
	return p
}

func (p Position) hasEvaluation(e record.Evaluation) bool {
	return slices.Contains(p.Evaluations, Evaluated{Policy: e.Policy, Kind: e.Kind, Version: e.Version})
}

// ofPolicy returns what names of a policy begin with after their prefix: nothing for the
// default policy.
func ofPolicy(policy string) string {
	if policy == model.DefaultPolicy {
		return ""
	}
	return policy + "/"
}

// values returns metrics sorted by name.
func values(metrics map[string]float64) []Value {
	out := make([]Value, 0, len(metrics)+1)
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		out = append(out, Value{name, metrics[name]})
	}
	return out
}
