package spec

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Ways to choose a step's tasks.
const (
	CurriculumUniform      = "uniform"
	CurriculumBand         = "band"
	CurriculumEasiestFirst = "easiest_first"
	CurriculumStages       = "stages"
)

func curricula() []string {
	return []string{CurriculumUniform, CurriculumBand, CurriculumEasiestFirst, CurriculumStages}
}

// maxStages is the largest number of stages in a curriculum.
const maxStages = 100

// Curriculum says which tasks a step attempts.
type Curriculum struct {
	// Type is "uniform" (every task once an epoch, as without a curriculum), "band" (tasks
	// whose recorded pass rate lies between two bounds), "easiest_first" (first the
	// easiest tasks, later all) or "stages" (one source of tasks after the other).
	Type string `json:"type"`
	// Low is the lower bound of "band": it draws tasks whose estimated pass rate is above
	// this number, which may be 0. Only with type "band".
	Low *float64 `json:"low,omitempty"`
	// High is the upper bound of "band": it draws tasks whose estimated pass rate is below
	// this number. Only with type "band".
	High float64 `json:"high,omitempty"`
	// Explore is the share of a step's tasks that "band" takes from outside of the band:
	// those that were not attempted for the longest time. 0 explores nothing. Only with
	// type "band".
	Explore *float64 `json:"explore,omitempty"`
	// Forget is the share of its weight that a recorded result loses with each step, from
	// 0.001 to 0.9. A result with less than a thousandth of its weight does not count.
	// Only with type "band", or "easiest_first" without difficulty.
	Forget float64 `json:"forget,omitempty"`
	// Difficulty is a key in the metadata of tasks. "easiest_first" orders the tasks by
	// the number under this key, smallest first. Absent means that it orders them by their
	// recorded pass rate.
	Difficulty string `json:"difficulty,omitempty"`
	// Start is the share of the tasks, the easiest ones, that "easiest_first" chooses from
	// in the first step. Absent means 0.2.
	Start float64 `json:"start,omitempty"`
	// Steps is the number of steps until "easiest_first" chooses from all tasks. The share
	// grows by the same amount each step. Absent or 0 means half of the run's steps.
	Steps int `json:"steps,omitempty"`
	// Stages are the parts of the run with type "stages", in order: 2 to 100 of them.
	Stages []Stage `json:"stages,omitempty"`
}

// Stage is a part of a run whose tasks come from one source.
type Stage struct {
	// Name of the stage, as the run shows it. Absent means the number of the stage, from
	// 1.
	Name string `json:"name,omitempty"`
	// Tasks is a source of tasks, written like tasks.train. Absent means the tasks of
	// tasks.train.
	Tasks string `json:"tasks,omitempty"`
	// Where selects the tasks of the source that belong to the stage. Absent means all of
	// them.
	Where *Where `json:"where,omitempty"`
	// Until holds the conditions that end the stage. The next stage begins as soon as one
	// of them holds. The last stage has none.
	Until Until `json:"until,omitzero"`
}

// Where selects tasks by a key of their metadata.
type Where struct {
	// Field is a key of the tasks' metadata. Only tasks whose value under it is allowed
	// are selected.
	Field string `json:"field"`
	// Values lists the allowed values: texts, or numbers and truth values written as text.
	Values []string `json:"values,omitempty"`
	// AtLeast is the smallest allowed number. Absent means no lower bound.
	AtLeast *float64 `json:"at_least,omitempty"`
	// AtMost is the largest allowed number. Absent means no upper bound.
	AtMost *float64 `json:"at_most,omitempty"`
}

// Until holds the conditions that end a stage. They are checked when a step begins,
// against the results of the steps that were finished by then.
type Until struct {
	// Steps is the number of steps after which the stage ends. Absent or 0 means no such
	// condition.
	Steps int `json:"steps,omitempty"`
	// Reward ends the stage when the mean reward of its last finished steps is at least
	// this number. until.over says how many steps.
	Reward *float64 `json:"reward,omitempty"`
	// Over is the number of steps in the mean of until.reward. Absent means 5.
	Over int `json:"over,omitempty"`
	// Evaluation ends the stage when the newest version that was evaluated on the gate
	// split during the stage has at least this mean reward. It needs tasks.gate.
	Evaluation *float64 `json:"evaluation,omitempty"`
}

// Chooses reports whether a curriculum decides about the tasks of a step. Otherwise the
// tasks are taken from the stream, epoch after epoch.
func (t Training) Chooses() bool {
	return t.Curriculum != nil && t.Curriculum.Type != CurriculumUniform
}

// TrainSources returns the sources that make up the train split, each once and in order:
// tasks.train, then the sources of stages.
func (s Spec) TrainSources() []string {
	var out []string
	if s.Tasks.Train != "" {
		out = append(out, s.Tasks.Train)
	}
	if c := s.Training.Curriculum; c != nil {
		for _, stage := range c.Stages {
			if stage.Tasks != "" && !slices.Contains(out, stage.Tasks) {
				out = append(out, stage.Tasks)
			}
		}
	}
	return out
}

// Title returns the name of a stage as it is shown: its name, or its number from 1.
func (c Curriculum) Title(stage int) string {
	return cmp.Or(c.Stages[stage].Name, fmt.Sprint(stage+1))
}

func (c *Curriculum) withDefaults() *Curriculum {
	if c == nil {
		return nil
	}
	out := *c // the caller's copy does not change
	switch c.Type {
	case CurriculumUniform:
		if len(c.Stages) == 0 && c.Low == nil && c.Explore == nil && c.High == 0 && c.Forget == 0 && c.Difficulty == "" && c.Start == 0 && c.Steps == 0 {
			return nil // the same as no curriculum
		}
	case CurriculumBand:
		low, explore := 0.1, 0.1
		out.Low, out.Explore = cmp.Or(out.Low, &low), cmp.Or(out.Explore, &explore)
		out.High = cmp.Or(out.High, 0.9)
		out.Forget = cmp.Or(out.Forget, 0.03)
	case CurriculumEasiestFirst:
		out.Start = cmp.Or(out.Start, 0.2)
		if out.Difficulty == "" {
			out.Forget = cmp.Or(out.Forget, 0.03)
		}
	}
	out.Stages = slices.Clone(c.Stages)
	for i := range out.Stages {
		if u := &out.Stages[i].Until; u.Reward != nil {
			u.Over = cmp.Or(u.Over, 5)
		}
	}
	return &out
}

// checkCurriculum checks the curriculum of s, whose defaults must be filled in.
func (s Spec) checkCurriculum(f *Faults) {
	c := s.Training.Curriculum
	if c == nil {
		return
	}
	const at = "training.curriculum"
	if why := s.untrained(); why != "" {
		f.unused(at, true, why)
		return
	}
	if c.Type == "" {
		f.add(at+".type", "give one of "+strings.Join(curricula(), ", "), "missing")
		return
	}
	f.choice(at+".type", c.Type)
	band, easiest := c.Type == CurriculumBand, c.Type == CurriculumEasiestFirst
	only := func(key string, written bool, types string) {
		f.unused(at+"."+key, written, "only "+types+" has one")
	}
	if band {
		f.number(at+".low", *c.Low, bounds.Bounds{Low: 0, High: 1, Below: true})
		f.number(at+".high", c.High, bounds.Positive(1))
		f.number(at+".explore", *c.Explore, bounds.Between(0, 1))
		if *c.Low >= c.High {
			f.add(at+".low", "give less than training.curriculum.high", "no pass rate is above %g and below %g", *c.Low, c.High)
		}
	}
	only("low", c.Low != nil && !band, "type band")
	only("high", c.High != 0 && !band, "type band")
	only("explore", c.Explore != nil && !band, "type band")
	if band || easiest && c.Difficulty == "" {
		f.number(at+".forget", c.Forget, bounds.Between(0.001, 0.9))
	} else {
		only("forget", c.Forget != 0, "type band, or easiest_first without difficulty,")
	}
	if easiest {
		f.number(at+".start", c.Start, bounds.Positive(1))
		f.whole(at+".steps", c.Steps, 0, 1e9)
	}
	only("difficulty", c.Difficulty != "" && !easiest, "type easiest_first")
	only("start", c.Start != 0 && !easiest, "type easiest_first")
	only("steps", c.Steps != 0 && !easiest, "type easiest_first")
	if c.Type == CurriculumStages {
		s.checkStages(f, c.Stages)
	} else {
		only("stages", len(c.Stages) > 0, "type stages")
	}
}

func (s Spec) checkStages(f *Faults, stages []Stage) {
	const at = "training.curriculum.stages"
	if len(stages) < 2 {
		f.add(at, "give two or more, or leave training.curriculum out", "%d stages", len(stages))
		return
	}
	if len(stages) > maxStages {
		f.add(at, fmt.Sprintf("give at most %d", maxStages), "%d stages", len(stages))
	}
	ofTrain := false
	for i, stage := range stages {
		key := fmt.Sprintf("%s[%d]", at, i)
		ofTrain = ofTrain || stage.Tasks == ""
		if stage.Name != "" && slices.ContainsFunc(stages[:i], func(earlier Stage) bool { return earlier.Name == stage.Name }) {
			f.add(key+".name", "give each stage a name of its own", "%q is given twice", stage.Name)
		}
		f.source(key+".tasks", stage.Tasks, false)
		for _, split := range []struct{ key, source string }{{"tasks.gate", s.Tasks.Gate}, {"tasks.test", s.Tasks.Test}} {
			if stage.Tasks != "" && split.source != "" && sameTasks(stage.Tasks, split.source) {
				f.add(key+".tasks", "splits must share no task", "the same tasks as %s", split.key)
			}
		}
		stage.Where.check(f, key+".where")
		s.checkUntil(f, key+".until", stage.Until, i == len(stages)-1)
	}
	if !ofTrain {
		f.add(at, "leave the tasks of one stage out, and name them as tasks.train", "no stage takes those of tasks.train")
	}
}

func (w *Where) check(f *Faults, key string) {
	if w == nil {
		return
	}
	if w.Field == "" {
		f.add(key+".field", "give a key of the tasks' metadata", "missing")
	}
	if len(w.Values) == 0 && w.AtLeast == nil && w.AtMost == nil {
		f.add(key, "give values, at_least or at_most", "no condition")
	}
	f.unused(key+".values", len(w.Values) > 0 && (w.AtLeast != nil || w.AtMost != nil), "at_least and at_most compare numbers")
	all := bounds.Between(math.Inf(-1), math.Inf(1))
	for _, number := range []struct {
		key   string
		value *float64
	}{{"at_least", w.AtLeast}, {"at_most", w.AtMost}} {
		if number.value != nil {
			f.number(key+"."+number.key, *number.value, all)
		}
	}
	if w.AtLeast != nil && w.AtMost != nil && *w.AtLeast > *w.AtMost {
		f.add(key+".at_least", "give at most at_most", "no number is at least %g and at most %g", *w.AtLeast, *w.AtMost)
	}
}

func (s Spec) checkUntil(f *Faults, key string, u Until, last bool) {
	all := bounds.Between(math.Inf(-1), math.Inf(1))
	given := u.Steps != 0 || u.Reward != nil || u.Evaluation != nil
	switch {
	case last:
		f.unused(key, given || u.Over != 0, "no stage comes after the last one")
		return
	case !given:
		f.add(key, "give steps, reward or evaluation", "missing, and the next stage would never begin")
	}
	f.whole(key+".steps", u.Steps, 0, 1e9)
	if u.Reward != nil {
		f.number(key+".reward", *u.Reward, all)
		f.whole(key+".over", u.Over, 1, 10000)
	} else {
		f.unused(key+".over", u.Over != 0, "only until.reward is a mean over steps")
	}
	if u.Evaluation != nil {
		f.number(key+".evaluation", *u.Evaluation, all)
		if s.Tasks.Gate == "" {
			f.add(key+".evaluation", "give tasks.gate", "there is no split to evaluate")
		}
	}
}
