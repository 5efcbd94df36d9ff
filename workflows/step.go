package workflows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

// step waits for the rollouts of step Step+1 and trains version Step+1 on them.
func (t *trainingRun) step(ctx workflow.Context) error {
	g := t.inFlight[0]
	step := g.step
	t.enter(ctx, PhaseRollouts, fmt.Sprintf("step %d", step))
	if err := workflow.Await(ctx, func() bool { return g.done }); err != nil {
		return err
	}
	if g.err != nil {
		return g.err
	}
	t.enter(ctx, PhaseUpdate, fmt.Sprintf("step %d", step))
	began := workflow.Now(ctx)
	batch, v, err := t.update(ctx, g)
	if err != nil {
		return err
	}
	t.updating = workflow.Now(ctx).Sub(began)
	mean := g.mean()
	if len(g.replaced) > 0 { // the batch knows only the others
		g.addMetrics(map[string]float64{record.AllRollouts: mean})
	}
	point, err := t.conclude(ctx, step, v, batch.Batch, merge(batch.Metrics, g.metrics), mean)
	if err != nil {
		return err
	}
	t.warn(ctx, step, batch)
	t.advance(g, point)
	if n := len(t.Quarantined); n > maxQuarantined {
		return temporal.NewNonRetryableApplicationError(fmt.Sprintf(
			"%d tasks are quarantined, the last because: %s; fix the agent or the grader and retry the run, or fix the tasks and start another", n, t.Quarantined[n-1].Reason), activities.ErrTypeInvalid, nil)
	}
	return t.publishAttributes(ctx)
}

// conclude publishes, evaluates and records what a step has made of its batch.
func (t *trainingRun) conclude(ctx workflow.Context, step int, v activities.VersionResult, batch string, metrics map[string]float64, reward float64) (CurvePoint, error) {
	point := CurvePoint{Step: step, Reward: reward}
	if err := t.publish(ctx, step); err != nil {
		return point, err
	}
	t.Weights = v.Weights
	if t.evaluates(step) {
		var err error
		if point.Gate, err = t.gate(ctx, step); err != nil {
			return point, err
		}
	}
	var c *activities.Coordinator
	return point, workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("record step %d", step)), c.RecordStep, activities.RecordStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: step, Batch: batch, Metrics: merge(metrics, v.Metrics),
	}).Get(ctx, nil)
}

// warn takes in what a step's batch says about how the run learns.
func (t *trainingRun) warn(ctx workflow.Context, step int, batch activities.AssignCreditResult) {
	t.Untaught.Add(step, batch.Metrics)
	if text := t.Untaught.Text(); text != "" {
		workflow.GetLogger(ctx).Warn("steps taught nothing", "run", t.Run, "step", step, "reason", text)
	}
	n := int(batch.Metrics["batch/left_out_groups"])
	if n == 0 {
		return
	}
	t.LeftOut += n
	if len(batch.LeftOut) > 0 {
		t.LeftOutReason = shortReason(batch.LeftOut[0])
	}
	workflow.GetLogger(ctx).Warn("groups were left out of a batch", "run", t.Run, "step", step, "groups", n, "reasons", batch.LeftOut)
}

// update makes the batch of a step and the version trained on it. A critic, if the
// spec has one, then learns from the same batch.
func (t *trainingRun) update(ctx workflow.Context, g *stepGroups) (activities.AssignCreditResult, activities.VersionResult, error) {
	var v activities.VersionResult
	batch, err := t.credit(ctx, g)
	if err != nil {
		return batch, v, err
	}
	var trainer *activities.Trainer
	err = workflow.ExecuteActivity(training(ctx, fmt.Sprintf("version %d from %d", g.step, g.step-1)), trainer.TrainStep, activities.TrainStepInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Batch: batch.Batch, Set: t.settingsOf(g.step),
	}).Get(ctx, &v)
	if err != nil {
		return batch, v, err
	}
	learned, err := t.trainCritic(ctx, g, batch.Batch)
	v.Metrics = merge(v.Metrics, learned)
	return batch, v, err
}

// credit makes the batch of a step. The scores of a critic, a reference and a judge
// come before it, each only if the spec asks for it. No spec from before these
// activities asks for them, so no version of the workflow is needed.
func (t *trainingRun) credit(ctx workflow.Context, g *stepGroups) (activities.AssignCreditResult, error) {
	var c *activities.Coordinator
	var batch activities.AssignCreditResult
	values, err := t.values(ctx, g)
	if err != nil {
		return batch, err
	}
	reference, err := t.reference(ctx, g)
	if err != nil {
		return batch, err
	}
	judgments, err := t.judge(ctx, g)
	if err != nil {
		return batch, err
	}
	err = workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("batch of step %d", g.step)), c.AssignCredit, activities.AssignCreditInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Groups: g.groups(), Values: values, Judgments: judgments, Reference: reference,
	}).Get(ctx, &batch)
	return batch, err
}

// advance makes a finished step part of the state.
func (t *trainingRun) advance(g *stepGroups, point CurvePoint) {
	t.inFlight = t.inFlight[1:]
	t.Step = g.step
	t.Cursor += len(g.results)
	for _, r := range g.all() {
		t.Failed += r.Failed
		t.Calls += r.Calls
		t.Tokens += r.Tokens
	}
	for _, q := range g.quarantined {
		if slices.ContainsFunc(t.Quarantined, func(known Quarantine) bool { return known.Index == q.Index }) {
			continue // met again; it counts once
		}
		q.Reason = shortReason(q.Reason)
		t.Quarantined = append(t.Quarantined, q)
	}
	t.addPoint(point)
}

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
	kind     record.Kind
	task     int // ordinal
	index    int // in the train split
}

// startSteps starts the rollouts of the next step and of as many after it as the lag
// allows.
func (t *trainingRun) startSteps(ctx workflow.Context) error {
	tr := t.Spec.Training
	for !t.Paused && !t.draining {
		if err := t.awaitLookups(ctx); err != nil {
			return err
		}
		step := t.started() + 1
		if step > min(t.last(), t.Step+1+tr.Lag) {
			return nil
		}
		if err := t.checkBudget(ctx); err != nil {
			return err
		}
		if t.Paused || step > t.last() {
			continue // so it was decided in the meantime
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
	return nil
}

// started returns the last step whose rollouts have begun, or which is made of conversations.
func (t *trainingRun) started() int {
	if t.learning {
		return t.Step + 1
	}
	return t.Step + len(t.inFlight)
}

// runRollouts runs the tasks of a step, one child workflow each, and then the
// replacements for some of them. before is the step before, if it is under way too.
func (t *trainingRun) runRollouts(ctx workflow.Context, g, before *stepGroups) error {
	indices, err := t.batchTasks(ctx, g, before)
	if err != nil {
		return err
	}
	todo := make([]groupTask, len(g.results))
	for i := range todo {
		todo[i] = groupTask{position: i, kind: record.Train, task: g.cursor + i, index: indices[i]}
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

// batchTasks returns the tasks of a step's batch by their index in the train split: the
// next ones of the stream, or the ones that the spec's curriculum chooses.
//
// A curriculum chooses in the order of steps, even if steps overlap, since a stage may
// depend on the stage of the step before. Specs from before there were curricula ask for
// none, so old histories need no version of the workflow.
func (t *trainingRun) batchTasks(ctx workflow.Context, g, before *stepGroups) ([]int, error) {
	if t.Spec.Training.Chooses() {
		if before != nil {
			if err := workflow.Await(ctx, func() bool { return before.chosen || before.done }); err != nil {
				return nil, err
			}
			if before.err != nil {
				return nil, before.err // the run ends with it
			}
		}
		return t.chooseTasks(ctx, g, 0, len(g.results))
	}
	n := t.Splits[record.Train].Count
	indices := make([]int, len(g.results))
	for i := range indices {
		indices[i], _ = stream.At(t.Spec.Seed, n, g.cursor+i)
	}
	return indices, nil
}

// reserveTasks returns the next count reserve tasks of a step, by their index in the
// train split.
func (t *trainingRun) reserveTasks(ctx workflow.Context, g *stepGroups, count int) ([]int, error) {
	if t.Spec.Training.Chooses() && count > 0 {
		return t.chooseTasks(ctx, g, len(g.results)+g.reserves, count)
	}
	n := t.Splits[record.Train].Count
	indices := make([]int, count)
	for i := range indices {
		indices[i] = stream.Reserve(t.Spec.Seed, n, g.step, g.reserves+i)
	}
	return indices, nil
}

// chooseTasks asks for count places of the step's choice, from first on. The activity
// decides from what is on record, which grows with the run; its result stays small.
func (t *trainingRun) chooseTasks(ctx workflow.Context, g *stepGroups, first, count int) ([]int, error) {
	var c *activities.Coordinator
	var out activities.ChooseTasksResult
	summary := fmt.Sprintf("tasks of step %d", g.step)
	if first > 0 {
		summary = fmt.Sprintf("reserves of step %d", g.step)
	}
	err := workflow.ExecuteActivity(coordination(ctx, summary), c.ChooseTasks, activities.ChooseTasksInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, First: first, Count: count, Set: t.settingsOf(g.step),
	}).Get(ctx, &out)
	if err != nil {
		return nil, err
	}
	g.chosen, g.text = true, out.Text
	g.addMetrics(out.Metrics)
	return out.Tasks, nil
}

// reservesPerTask bounds how many reserve tasks may replace quarantined tasks of a
// step. If more are quarantined, the fault is not in the tasks.
const reservesPerTask = 4

// replaceGroups draws a reserve task for each finished group that needs another one:
// for groups of quarantined tasks and, up to the spec's training.dynamic_sampling, for
// flat groups. It goes by position and never by order of arrival. A run that was killed
// or delayed therefore replaces the same groups by the same tasks.
//
// This needs no version of the workflow: with dynamic_sampling 0, as in every spec from
// before the key, the commands are those of older code. flatGroups has its own version.
func (t *trainingRun) replaceGroups(ctx workflow.Context, g *stepGroups, todo []groupTask) ([]groupTask, error) {
	most := t.Spec.Training.DynamicSampling
	if most > 0 {
		if err := t.flatGroups(ctx, g, todo); err != nil {
			return nil, err
		}
	}
	var out []groupTask
	for _, task := range todo {
		switch r := g.results[task.position]; {
		case r.Quarantine != "":
			if err := t.quarantine(ctx, g, task); err != nil {
				return nil, err
			}
		case g.isFlat[task.position] && len(g.replaced) < most:
			g.replaced = append(g.replaced, r)
			g.count.Total += g.samples
		default:
			continue
		}
		out = append(out, task)
	}
	if len(g.quarantined) > reservesPerTask*len(g.results) {
		return nil, temporal.NewNonRetryableApplicationError(fmt.Sprintf(
			"step %d: %d draws in a row gave quarantined tasks, the last because: %s; fix the agent or the grader and retry the run, or fix the tasks and start another",
			g.step, len(g.quarantined), g.quarantined[len(g.quarantined)-1].Reason), activities.ErrTypeInvalid, nil)
	}
	indices, err := t.reserveTasks(ctx, g, len(out))
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i].kind, out[i].task, out[i].index = record.Reserve, g.reserves, indices[i]
		g.reserves++
	}
	if most > 0 && len(out) == 0 {
		g.addMetrics(map[string]float64{"batch/refilled_groups": float64(len(g.replaced)), "batch/flat_groups": float64(g.stillFlat())})
	}
	return out, nil
}

// flatGroups marks the groups that are flat: they would get no advantage. If the credit
// compares only final rewards, equal rewards decide, and a group that sampled nothing is
// flat whatever its rewards are. Otherwise an activity looks at
// everything that the credit depends on.
func (t *trainingRun) flatGroups(ctx workflow.Context, g *stepGroups, todo []groupTask) error {
	var positions []int
	in := activities.FlatGroupsInput{Run: t.Run, Policy: model.DefaultPolicy, Step: g.step}
	for _, task := range todo {
		r := g.results[task.position]
		if r.Quarantine == "" {
			g.isFlat[task.position] = r.Tokens == 0 || !credit.Varies(r.Group.Rewards)
			positions, in.Groups = append(positions, task.position), append(in.Groups, r.Group)
		}
	}
	if len(positions) == 0 || !t.Spec.FlatByCredit() {
		return nil
	}
	var c *activities.Coordinator
	var out activities.FlatGroupsResult
	if err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("groups of step %d", g.step)), c.FlatGroups, in).Get(ctx, &out); err != nil {
		return err
	}
	for i, position := range positions {
		g.isFlat[position] = out.Flat[i]
	}
	return nil
}

// stillFlat counts the flat groups that are trained all the same.
func (g *stepGroups) stillFlat() int {
	n := 0
	for _, flat := range g.isFlat {
		if flat {
			n++
		}
	}
	return n
}

// addMetrics adds to the metrics of the step.
func (g *stepGroups) addMetrics(metrics map[string]float64) {
	if g.metrics == nil {
		g.metrics = map[string]float64{}
	}
	maps.Copy(g.metrics, metrics)
}

// quarantine records that a task can't be trained on.
func (t *trainingRun) quarantine(ctx workflow.Context, g *stepGroups, task groupTask) error {
	q := Quarantine{Index: task.index, Step: g.step, Reason: g.results[task.position].Quarantine}
	g.quarantined = append(g.quarantined, q)
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("task %d of step %d", task.task, g.step)), c.RecordQuarantine, activities.RecordQuarantineInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Task: task.task, Index: task.index, Reserve: task.kind == record.Reserve, Reason: q.Reason,
	}).Get(ctx, nil)
}
