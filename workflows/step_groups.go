package workflows

import (
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// wave is the rollouts of one step: one group for each place. The place of a group
// that can't be trained on, or that would teach nothing, is taken by one from the
// reserve.
type wave struct {
	step        int
	cursor      int // ordinal of the first task in the stream
	samples     int // per task
	results     []RolloutResult
	reserves    int // taken so far
	quarantined []Quarantine
	flat        []RolloutResult    // that others have replaced, in order
	flatAt      []bool             // by place: its group teaches nothing
	metrics     map[string]float64 // of the step, beside those of its batch and update
	count       Count
	done        bool
	err         error
}

// errand is a task to be rolled out for a place of the wave.
type errand struct {
	place int
	kind  trace.Kind
	task  int // ordinal
	index int // in the train split
}

// launch begins the waves that may begin: those of the next step and of as many
// after it as the lag allows.
func (t *trainingRun) launch(ctx workflow.Context) {
	tr := t.Spec.Training
	for !t.Paused && !t.draining {
		step := t.started() + 1
		if step > min(t.last(), t.Step+1+tr.Lag) {
			return
		}
		w := &wave{
			step: step, cursor: t.Cursor + len(t.waves)*tr.TasksPerStep, samples: tr.SamplesPerTask,
			results: make([]RolloutResult, tr.TasksPerStep), flatAt: make([]bool, tr.TasksPerStep),
			count: Count{Total: tr.TasksPerStep * tr.SamplesPerTask},
		}
		t.waves = append(t.waves, w)
		workflow.Go(ctx, func(ctx workflow.Context) {
			w.err = t.rollOut(ctx, w)
			w.done = true
		})
	}
}

// started is the last step whose rollouts have begun.
func (t *trainingRun) started() int { return t.Step + len(t.waves) }

// rollOut runs the wave's tasks, one child workflow each, and then those that have
// to stand in for some of them.
func (t *trainingRun) rollOut(ctx workflow.Context, w *wave) error {
	n := t.Splits[trace.Train].Count
	errands := make([]errand, len(w.results))
	for i := range errands {
		index, _ := tasks.At(t.Spec.Seed, n, w.cursor+i)
		errands[i] = errand{place: i, kind: trace.Train, task: w.cursor + i, index: index}
	}
	for len(errands) > 0 {
		known := t.quarantinedBefore(w.step)
		if err := t.runGroups(ctx, w, errands, known); err != nil {
			return err
		}
		var err error
		if errands, err = t.refill(ctx, w, errands); err != nil {
			return err
		}
	}
	return nil
}

// runGroups runs a group for each errand, but for tasks that are known to be
// quarantined.
func (t *trainingRun) runGroups(ctx workflow.Context, w *wave, errands []errand, known []Quarantine) error {
	var begin []errand
	for _, e := range errands {
		if i := slices.IndexFunc(known, func(q Quarantine) bool { return q.Index == e.index }); i >= 0 {
			w.results[e.place] = RolloutResult{Quarantine: fmt.Sprintf("quarantined since step %d: %s", known[i].Step, known[i].Reason)}
			continue
		}
		begin = append(begin, e)
	}
	return each(ctx, t.slots, len(begin), func(ctx workflow.Context, i int) error {
		r, err := t.runGroup(ctx, w, begin[i])
		if err != nil {
			return err
		}
		w.results[begin[i].place] = r
		if r.Quarantine == "" {
			w.count.Done += w.samples
		}
		return nil
	})
}

// runGroup runs the group of an errand. One that a person cancelled says so in its
// quarantine: the person spoke about the task and not about the run.
func (t *trainingRun) runGroup(ctx workflow.Context, w *wave, e errand) (RolloutResult, error) {
	version := samplingVersion(w.step, t.Spec.Training)
	in := RolloutInput{
		Run: t.Run, Kind: e.kind, Step: w.step, Task: e.task, Index: e.index, Policy: model.DefaultPolicy, Version: version, Samples: w.samples,
	}
	in.Agent, in.Grader = forChildren(t.Spec)
	id := rolloutID(t.Run, e.kind, w.step, e.task)
	r, err := runChild[RolloutResult](ctx, id, rolloutSummary(in), RolloutWorkflow, in)
	var stopped *stoppedError
	if errors.As(err, &stopped) {
		return RolloutResult{Quarantine: stopped.why}, nil
	}
	return r, err
}

// samplingVersion is the version that the rollouts of a step are sampled from.
func samplingVersion(step int, tr spec.Training) int { return max(0, step-1-tr.Lag) }

// quarantinedBefore are the tasks that a step must not use: those found by steps
// that were certainly finished when its rollouts began, whatever the lag. What
// later ones found may or may not be known by now, and must not matter.
func (t *trainingRun) quarantinedBefore(step int) []Quarantine {
	var out []Quarantine
	for _, q := range t.Quarantined {
		if q.Step <= step-1-t.Spec.Training.Lag {
			out = append(out, q)
		}
	}
	return out
}

// groups are the groups to train on, in order of place.
func (w *wave) groups() []activities.Group {
	out := make([]activities.Group, len(w.results))
	for i, r := range w.results {
		out[i] = r.Group
	}
	return out
}

// mean is the mean reward over all rollouts of the wave, those of replaced groups
// too: only so does it say how good the policy is.
func (w *wave) mean() float64 {
	sum := 0.0
	for _, r := range slices.Concat(w.results, w.flat) {
		for _, reward := range r.Group.Rewards {
			sum += reward
		}
	}
	return sum / float64(w.count.Total)
}
