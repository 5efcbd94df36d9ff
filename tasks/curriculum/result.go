package curriculum

import (
	"cmp"
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

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
	Kind trace.Kind
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
