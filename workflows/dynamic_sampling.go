package workflows

import (
	"fmt"
	"maps"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

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
		out[i].kind, out[i].task, out[i].index = trace.Reserve, g.reserves, indices[i]
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
	if len(positions) == 0 || !t.Spec.Credit.FlatByCredit() {
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
		Run: t.Run, Policy: model.DefaultPolicy, Step: g.step, Task: task.task, Index: task.index, Reserve: task.kind == trace.Reserve, Reason: q.Reason,
	}).Get(ctx, nil)
}
