package workflows

import (
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// reservesPerTask bounds how many tasks may stand in for those of a step. If more
// are quarantined, something is wrong with more than tasks.
const reservesPerTask = 4

// wave is the rollouts of one step: one group for each place. A quarantined
// group's place is taken by one from the reserve.
type wave struct {
	step        int
	cursor      int // ordinal of the first task in the stream
	samples     int // per task
	results     []RolloutResult
	reserves    int // taken so far
	quarantined []Quarantine
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
			results: make([]RolloutResult, tr.TasksPerStep),
			count:   Count{Total: tr.TasksPerStep * tr.SamplesPerTask},
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

// rollOut runs the wave's tasks, one child workflow each. Reserves are chosen
// when all groups are in, never by order of arrival.
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
		var empty []errand
		for _, e := range errands {
			if w.results[e.place].Quarantine == "" {
				continue
			}
			if err := t.quarantine(ctx, w, e); err != nil {
				return err
			}
			empty = append(empty, e)
		}
		errands = empty
		for i := range errands {
			if w.reserves == reservesPerTask*len(w.results) {
				return temporal.NewNonRetryableApplicationError(fmt.Sprintf(
					"step %d: %d tasks in a row were quarantined, the last because: %s; mend the agent, the grader or the tasks and start another run",
					w.step, len(w.quarantined), w.quarantined[len(w.quarantined)-1].Reason), activities.ErrTypeInvalid, nil)
			}
			errands[i].kind, errands[i].task, errands[i].index = trace.Reserve, w.reserves, tasks.Reserve(t.Spec.Seed, n, w.step, w.reserves)
			w.reserves++
		}
	}
	return nil
}

// runGroups runs a group for each errand, but for tasks that are known to be
// quarantined.
func (t *trainingRun) runGroups(ctx workflow.Context, w *wave, errands []errand, known []Quarantine) error {
	wg := workflow.NewWaitGroup(ctx)
	var failure error
	for _, e := range errands {
		if i := slices.IndexFunc(known, func(q Quarantine) bool { return q.Index == e.index }); i >= 0 {
			w.results[e.place] = RolloutResult{Quarantine: fmt.Sprintf("quarantined since step %d: %s", known[i].Step, known[i].Reason)}
			continue
		}
		if err := t.slots.Acquire(ctx, 1); err != nil {
			return err
		}
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			defer t.slots.Release(1)
			r, err := t.runGroup(ctx, w, e)
			if err != nil {
				failure = err
				return
			}
			w.results[e.place] = r
			if r.Quarantine == "" {
				w.count.Done += w.samples
			}
		})
	}
	wg.Wait(ctx)
	return failure
}

func (t *trainingRun) runGroup(ctx workflow.Context, w *wave, e errand) (RolloutResult, error) {
	var r RolloutResult
	child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: rolloutID(t.Run, e.kind, w.step, e.task)})
	err := workflow.ExecuteChildWorkflow(child, RolloutWorkflow, RolloutInput{
		Run: t.Run, Kind: e.kind, Step: w.step, Task: e.task, Index: e.index, Policy: model.DefaultPolicy,
		Version: samplingVersion(w.step, t.Spec.Training), Samples: w.samples, Agent: t.Spec.Agent, Grader: t.Spec.Grader,
	}).Get(ctx, &r)
	return r, err
}

// samplingVersion is the version that the rollouts of a step are sampled from.
func samplingVersion(step int, tr spec.Training) int { return max(0, step-1-tr.Lag) }

// quarantine puts on record that the task of an errand can't be trained on.
func (t *trainingRun) quarantine(ctx workflow.Context, w *wave, e errand) error {
	q := Quarantine{Index: e.index, Step: w.step, Reason: w.results[e.place].Quarantine}
	w.quarantined = append(w.quarantined, q)
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("task %d of step %d", e.task, w.step)), c.RecordQuarantine, activities.QuarantineTaskInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: w.step, Task: e.task, Index: e.index, Reserve: e.kind == trace.Reserve, Reason: q.Reason,
	}).Get(ctx, nil)
}

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

// mean is the mean reward over all rollouts of the wave.
func (w *wave) mean() float64 {
	sum := 0.0
	for _, r := range w.results {
		for _, reward := range r.Group.Rewards {
			sum += reward
		}
	}
	return sum / float64(w.count.Total)
}
