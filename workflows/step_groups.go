package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// stepGroups are the rollouts of one step: one group for each position in the batch. A
// group that can't be trained on is replaced by one from the reserve. So are flat groups,
// up to the spec's training.dynamic_sampling.
type stepGroups struct {
	step        int
	cursor      int // ordinal of the first task in the stream
	samples     int // per task
	results     []RolloutResult
	reserves    int // taken so far
	quarantined []Quarantine
	replaced    []RolloutResult    // flat groups that others have replaced, in order
	isFlat      []bool             // by position
	metrics     map[string]float64 // of the step, in addition to those of its batch and update
	count       Count
	tokens      int       // sampled by the groups that have ended
	began       time.Time // of the rollouts
	seen        time.Time // when the last group ended
	// chosen is set once a curriculum has chosen the tasks of the batch; text says how.
	chosen bool
	text   string
	done   bool
	err    error
}

// groupTask is a task to be rolled out for a position of the batch.
type groupTask struct {
	position int
	kind     trace.Kind
	task     int // ordinal
	index    int // in the train split
}

// startSteps starts the rollouts of the next step and of as many after it as the lag
// allows.
func (t *trainingRun) startSteps(ctx workflow.Context) {
	tr := t.Spec.Training
	for !t.Paused && !t.draining {
		step := t.started() + 1
		if step > min(t.last(), t.Step+1+tr.Lag) {
			return
		}
		g := &stepGroups{
			step: step, cursor: t.Cursor + len(t.inFlight)*tr.TasksPerStep, samples: tr.SamplesPerTask,
			results: make([]RolloutResult, tr.TasksPerStep), isFlat: make([]bool, tr.TasksPerStep),
			count: Count{Total: tr.TasksPerStep * tr.SamplesPerTask}, began: workflow.Now(ctx),
		}
		var before *stepGroups
		if n := len(t.inFlight); n > 0 {
			before = t.inFlight[n-1]
		}
		t.inFlight = append(t.inFlight, g)
		workflow.Go(ctx, func(ctx workflow.Context) {
			g.err = t.runRollouts(ctx, g, before)
			g.done = true
		})
	}
}

// started returns the last step whose rollouts have begun.
func (t *trainingRun) started() int { return t.Step + len(t.inFlight) }

// runRollouts runs the tasks of a step, one child workflow each, and then the
// replacements for some of them. before is the step before, if it is under way too.
func (t *trainingRun) runRollouts(ctx workflow.Context, g, before *stepGroups) error {
	indices, err := t.batchTasks(ctx, g, before)
	if err != nil {
		return err
	}
	todo := make([]groupTask, len(g.results))
	for i := range todo {
		todo[i] = groupTask{position: i, kind: trace.Train, task: g.cursor + i, index: indices[i]}
	}
	for len(todo) > 0 {
		known := t.quarantinedBefore(g.step)
		if err := t.runGroups(ctx, g, todo, known); err != nil {
			return err
		}
		var err error
		if todo, err = t.replaceGroups(ctx, g, todo); err != nil {
			return err
		}
	}
	return nil
}

// runGroups runs a group for each task, except for known quarantined tasks.
func (t *trainingRun) runGroups(ctx workflow.Context, g *stepGroups, todo []groupTask, known []Quarantine) error {
	var begin []groupTask
	for _, task := range todo {
		if i := slices.IndexFunc(known, func(q Quarantine) bool { return q.Index == task.index }); i >= 0 {
			g.results[task.position] = RolloutResult{Quarantine: fmt.Sprintf("quarantined since step %d: %s", known[i].Step, known[i].Reason)}
			continue
		}
		begin = append(begin, task)
	}
	return concurrently(ctx, t.children, len(begin), func(ctx workflow.Context, i int) error {
		r, err := t.runGroup(ctx, g, begin[i])
		if err != nil {
			return err
		}
		g.results[begin[i].position] = r
		if r.Quarantine == "" {
			g.count.Done += g.samples
		}
		g.tokens, g.seen = g.tokens+r.Tokens, workflow.Now(ctx)
		t.showRollouts(ctx, g)
		return nil
	})
}

// runGroup runs the group of a task. Cancelling its workflow quarantines the task: the
// person who did it decided about the task and not about the run.
func (t *trainingRun) runGroup(ctx workflow.Context, g *stepGroups, task groupTask) (RolloutResult, error) {
	version := samplingVersion(g.step, t.Spec.Training)
	in := RolloutInput{
		Run: t.Run, Kind: task.kind, Step: g.step, Task: task.task, Index: task.index, Policy: model.DefaultPolicy, Version: version, Samples: g.samples,
	}
	in.Agent, in.Grader = forChildren(t.Spec)
	id := rolloutID(t.Run, task.kind, g.step, task.task)
	r, err := runChild[RolloutResult](ctx, id, rolloutSummary(in), RolloutWorkflow, in)
	var stopped *stoppedError
	if errors.As(err, &stopped) {
		return RolloutResult{Quarantine: stopped.why}, nil
	}
	return r, err
}

// samplingVersion returns the version that the rollouts of a step are sampled from.
func samplingVersion(step int, tr spec.Training) int { return max(0, step-1-tr.Lag) }

// quarantinedBefore returns the tasks that a step must not use: those found by steps that
// were certainly finished when its rollouts began, whatever the lag. A later step may or
// may not have found others by now; those must not matter.
func (t *trainingRun) quarantinedBefore(step int) []Quarantine {
	var out []Quarantine
	for _, q := range t.Quarantined {
		if q.Step <= step-1-t.Spec.Training.Lag {
			out = append(out, q)
		}
	}
	return out
}

// groups returns the groups to train on, in order of position.
func (g *stepGroups) groups() []activities.Group {
	out := make([]activities.Group, len(g.results))
	for i, r := range g.results {
		out[i] = r.Group
	}
	return out
}

// all returns the results of all rollouts of the step, including replaced groups.
func (g *stepGroups) all() []RolloutResult { return slices.Concat(g.results, g.replaced) }

// mean returns the mean reward over all rollouts of the step. Without the replaced groups
// it would not say how good the policy is.
func (g *stepGroups) mean() float64 {
	sum := 0.0
	for _, r := range g.all() {
		for _, reward := range r.Group.Rewards {
			sum += reward
		}
	}
	return sum / float64(g.count.Total)
}
