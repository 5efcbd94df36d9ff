// Package curriculum chooses the tasks of a step if the spec has a training.curriculum:
// tasks in a band of pass rates, the easiest tasks first, or the tasks of a stage
// ([Choose]).
//
// It reads and writes nothing. Package activities passes it the recorded results and
// records the choice. Package report passes it the same results to check a run.
//
// Guarantees: a choice depends only on its input, and is the same on every machine. No
// task is drawn twice in a step while another one is left. What a step draws depends only
// on steps that were certainly finished when it began, whatever the lag. If a choice
// could not be made as the spec says, its note tells how it differs.
package curriculum

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
)

// ErrNoTasks is returned when every task that a step could attempt is quarantined.
var ErrNoTasks = errors.New("no task is left")

// Input has everything on which a choice depends.
type Input struct {
	Curriculum spec.Curriculum // with defaults filled in
	Pool
	Seed  uint64
	Step  int // from 1
	Steps int // how many the run has
	// Places is how many tasks the step attempts, Reserves how many more it may need.
	Places, Reserves int
	// Finished is the last step that was certainly finished when this one began. Results
	// holds those of the steps that Window returns. Evaluations holds those on the gate
	// split.
	Finished    int
	Results     []Result
	Evaluations []record.EvaluationResult
	// Quarantined are the tasks that the step must not attempt.
	Quarantined map[int]bool
	// Before is the choice of the step before, if there is one.
	Before *record.Choice
}

// Reserves returns how many groups a step may have to replace: as many flat ones as its
// spec says, and four quarantined ones for each of its tasks. If more are quarantined,
// the run ends.
func Reserves(t spec.Training) int { return t.DynamicSampling + 4*t.TasksPerStep }

// Finished returns the last step that was certainly finished when a step began.
func Finished(t spec.Training, step int) int { return max(0, step-1-t.Lag) }

// Window returns the first and the last of the steps whose results the choice of a step
// depends on. If last is before first, there are none. before is the choice of the
// previous step, if there is one.
func Window(c spec.Curriculum, finished, step int, before *record.Choice) (first, last int) {
	switch {
	case c.Type == spec.CurriculumStages:
		stage, since := 0, 1
		if before != nil {
			stage, since = before.Stage, before.Since
		}
		until := c.Stages[stage].Until
		if until.Reward == nil {
			return 1, 0
		}
		return max(since, finished-until.Over+1), finished
	case c.Forget > 0:
		return max(1, step-len(weights(c.Forget))+1), finished
	}
	return 1, 0
}

// Choose decides which tasks a step attempts. The caller sets Run, Policy, Settings and
// At of the choice. The error wraps ErrNoTasks if all tasks are quarantined. The only
// other error is an unknown type of curriculum.
func Choose(in Input) (record.Choice, error) {
	c := chooser{Input: in, drawn: map[int]bool{}}
	c.out = record.Choice{Step: in.Step, Places: in.Places}
	switch in.Curriculum.Type {
	case spec.CurriculumBand:
		c.band()
	case spec.CurriculumEasiestFirst:
		c.easiestFirst()
	case spec.CurriculumStages:
		c.stage()
	default:
		return c.out, fmt.Errorf("curriculum %q chooses nothing", in.Curriculum.Type)
	}
	if n := len(c.out.Draws); n == 0 {
		return c.out, fmt.Errorf("step %d: %w: all %d are quarantined", in.Step, ErrNoTasks, len(in.Quarantined))
	} else if n < in.Places {
		c.note("%d tasks are left for %d places, so that some come twice", n, in.Places)
	}
	return c.out, nil
}

// chooser makes one choice.
type chooser struct {
	Input
	out   record.Choice
	drawn map[int]bool
}

// full reports whether all places and reserves are drawn.
func (c *chooser) full() bool { return len(c.out.Draws) >= c.Places+c.Reserves }

// draw adds a task, unless it was drawn already or all places are taken.
func (c *chooser) draw(task int, why record.Reason, rate *float64) {
	if c.full() || c.drawn[task] || c.Quarantined[task] {
		return
	}
	c.drawn[task] = true
	c.out.Draws = append(c.out.Draws, record.Draw{Task: task, Why: why, Rate: rate})
}

func (c *chooser) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if c.out.Note != "" {
		text = c.out.Note + "; " + text
	}
	c.out.Note = text
}

// curriculumDomain separates these orders from other uses of a seed.
const curriculumDomain = 0x63757272 // "curr"

// shuffled returns the tasks that are not quarantined, in an order that depends on the
// step.
func (c *chooser) shuffled() []int {
	key := shuffle.Key(curriculumDomain, c.Seed, uint64(c.Step))
	out := make([]int, 0, c.Tasks)
	for i := range c.Tasks {
		if task := shuffle.Index(key, c.Tasks, i); !c.Quarantined[task] {
			out = append(out, task)
		}
	}
	return out
}

// Pool has the tasks from which a curriculum chooses.
type Pool struct {
	// Tasks is how many there are in the train split.
	Tasks int
	// Difficulty of each task, if the spec names the key of one.
	Difficulty []float64
	// Stages holds, for each stage, the indices of its tasks in order.
	Stages [][]int
}

// NewPool reads from tasks what the curriculum of a spec needs to know about them. The
// tasks are those of s.TrainSources, one source after the other. parts holds how many
// tasks each source has; nil means that there is one source. Errors name the key of the
// spec and the task.
func NewPool(s spec.Spec, list []tasks.Task, parts []int) (Pool, error) {
	p := Pool{Tasks: len(list)}
	if !s.Training.Chooses() {
		return p, nil
	}
	c := s.Training.Curriculum
	if n := s.Training.TasksPerStep; len(list) < n {
		return p, fmt.Errorf("training.tasks_per_step: %d tasks a step, and tasks.train has %d: a curriculum chooses no task twice in a step; give fewer", n, len(list))
	}
	if c.Difficulty != "" {
		for i, t := range list {
			d, ok := number(t.Metadata[c.Difficulty])
			if !ok {
				return p, fmt.Errorf("training.curriculum.difficulty: task %s (number %d) has no number under metadata.%s; give it one, or leave the key out to go by recorded pass rates", t.ID, i+1, c.Difficulty)
			}
			p.Difficulty = append(p.Difficulty, d)
		}
	}
	for i, stage := range c.Stages {
		members := membersOf(s, stage, list, parts)
		if n := s.Training.TasksPerStep; len(members) < n {
			return p, fmt.Errorf("training.curriculum.stages[%d]: %d tasks belong to stage %s, and training.tasks_per_step is %d: no task comes twice in a step; give fewer tasks a step, or another filter",
				i, len(members), c.Title(i), n)
		}
		p.Stages = append(p.Stages, members)
	}
	return p, nil
}

// membersOf returns the tasks of a stage.
func membersOf(s spec.Spec, stage spec.Stage, list []tasks.Task, parts []int) []int {
	first, end := 0, len(list)
	if len(parts) > 0 {
		source := stage.Tasks
		if source == "" {
			source = s.Tasks.Train
		}
		at := slices.Index(s.TrainSources(), source)
		for _, n := range parts[:at] {
			first += n
		}
		end = first + parts[at]
	}
	var out []int
	for i := first; i < end; i++ {
		if stage.Where == nil || holds(*stage.Where, list[i].Metadata[stage.Where.Field]) {
			out = append(out, i)
		}
	}
	return out
}

// holds reports whether a value of a task's metadata satisfies a filter.
func holds(w spec.Where, value any) bool {
	if len(w.Values) > 0 {
		switch value.(type) {
		case string, bool, json.Number, float64, int:
			return slices.Contains(w.Values, fmt.Sprint(value))
		}
		return false
	}
	v, ok := number(value)
	return ok && (w.AtLeast == nil || v >= *w.AtLeast) && (w.AtMost == nil || v <= *w.AtMost)
}

// number returns a value of a task's metadata as a number. It reports false unless the
// value is a finite number.
func number(value any) (float64, bool) {
	v, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	switch value.(type) {
	case json.Number, float64, int:
		return v, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
	}
	return 0, false
}

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
		if of.Kind == record.Gate {
			in.Evaluations = append(in.Evaluations, of.EvaluationResult)
		}
	}
	return Choose(in)
}

// Result counts the results of the samples of one group.
type Result struct {
	Step    int
	Task    int // index in the train split
	Samples int
	Passed  int
	Sum     float64 // sum of the samples' rewards
}

// Group identifies a group of a step, as the addresses of its attempts do.
type Group struct {
	Step int
	Kind record.Kind
	Task int
}

// Results sums up scores, group by group. index is the place of each task in the train
// split, by id. A reward of at least success is a pass. Groups that were quarantined came
// to nothing, whatever rewards some of their samples have.
func Results(scores []record.StepScore, index map[string]int, quarantined map[Group]bool, success float64) []Result {
	scores = slices.Clone(scores)
	slices.SortFunc(scores, func(a, b record.StepScore) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Sample, b.Sample))
	})
	var out []Result
	var last Group
	for _, s := range scores {
		g := Group{s.Step, s.Kind, s.Task}
		task, known := index[s.TaskID]
		if quarantined[g] || !known {
			continue
		}
		if len(out) == 0 || g != last {
			out, last = append(out, Result{Step: s.Step, Task: task}), g
		}
		r := &out[len(out)-1]
		r.Samples++
		r.Sum += s.Reward
		if spec.Reaches(s.Reward, success) {
			r.Passed++
		}
	}
	return out
}

// lightest is the weight below which a result counts no longer.
const lightest = 0.001

// weights returns the weights of results by their age in steps, from 0, as long as they
// count. The conversions keep a compiler from fusing operations, which would round
// differently.
func weights(forget float64) []float64 {
	var out []float64
	keep := float64(1 - forget)
	for w := 1.0; w >= lightest; w = float64(w * keep) {
		out = append(out, w)
	}
	return out
}

// estimate is an estimate of a task's pass rate.
type estimate struct {
	rate float64
	last int // the last step that attempted the task
}

// estimates returns the pass rates of the tasks that have results which still count. Each
// estimate starts with one sample whose result is prior. The weight of this sample stays
// 1 while the weights of results decay, so the rate of a task that is not attempted
// returns to prior.
func estimates(results []Result, step int, forget, prior float64) map[int]estimate {
	weight := weights(forget)
	type sums struct {
		samples, passed float64
		last            int
	}
	all := map[int]sums{}
	for _, r := range results {
		age := step - r.Step
		if age < 0 || age >= len(weight) || r.Samples == 0 {
			continue
		}
		s := all[r.Task]
		s.samples += float64(weight[age] * float64(r.Samples))
		s.passed += float64(weight[age] * float64(r.Passed))
		s.last = max(s.last, r.Step)
		all[r.Task] = s
	}
	out := make(map[int]estimate, len(all))
	for task, s := range all {
		out[task] = estimate{rate: (prior + s.passed) / (1 + s.samples), last: s.last}
	}
	return out
}
