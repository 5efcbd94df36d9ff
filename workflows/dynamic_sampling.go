package workflows

import (
	"fmt"
	"maps"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// reservesPerTask bounds how many tasks may stand in for quarantined ones of a step.
// If more are quarantined, something is wrong with more than tasks.
const reservesPerTask = 4

// refill looks at the groups of some errands, which are all in, and makes errands
// of the reserve for the places that need another group: those of quarantined tasks
// and, as long as the spec's training.dynamic_sampling lasts, those of flat groups.
// It goes by place and never by order of arrival, so that a run that was killed or
// held up replaces the same groups by the same tasks.
//
// Neither this nor what follows from it needs a version of the workflow: with
// dynamic_sampling 0, as in every spec from before the key, the commands are what
// they were. What flatGroups adds to it has one.
func (t *trainingRun) refill(ctx workflow.Context, w *wave, errands []errand) ([]errand, error) {
	most := t.Spec.Training.DynamicSampling
	if most > 0 {
		if err := t.flatGroups(ctx, w, errands); err != nil {
			return nil, err
		}
	}
	var out []errand
	for _, e := range errands {
		switch r := w.results[e.place]; {
		case r.Quarantine != "":
			if err := t.quarantine(ctx, w, e); err != nil {
				return nil, err
			}
		case w.flatAt[e.place] && len(w.flat) < most:
			w.flat = append(w.flat, r)
			w.count.Total += w.samples
		default:
			continue
		}
		out = append(out, e)
	}
	if len(w.quarantined) > reservesPerTask*len(w.results) {
		return nil, temporal.NewNonRetryableApplicationError(fmt.Sprintf(
			"step %d: %d tasks in a row were quarantined, the last because: %s; mend the agent or the grader and retry the run, or mend the tasks and start another",
			w.step, len(w.quarantined), w.quarantined[len(w.quarantined)-1].Reason), activities.ErrTypeInvalid, nil)
	}
	n := t.Splits[trace.Train].Count
	for i := range out {
		out[i].kind, out[i].task, out[i].index = trace.Reserve, w.reserves, tasks.Reserve(t.Spec.Seed, n, w.step, w.reserves)
		w.reserves++
	}
	if most > 0 && len(out) == 0 {
		w.note(map[string]float64{"batch/refilled_groups": float64(len(w.flat)), "batch/flat_groups": float64(w.stillFlat())})
	}
	return out, nil
}

// flatGroups finds out which groups of some errands are flat: they would get no
// advantage. Where nothing but final rewards is compared, those that are equal tell
// by themselves; else an activity looks at all that the credit is made of. Runs from
// before there was that activity go on without it.
func (t *trainingRun) flatGroups(ctx workflow.Context, w *wave, errands []errand) error {
	var places []int
	in := activities.FlatGroupsInput{Run: t.Run, Policy: model.DefaultPolicy, Step: w.step}
	for _, e := range errands {
		r := w.results[e.place]
		if r.Quarantine == "" {
			w.flatAt[e.place] = !credit.Varies(r.Group.Rewards)
			places, in.Groups = append(places, e.place), append(in.Groups, r.Group)
		}
	}
	if len(places) == 0 || !t.Spec.Credit.FlatByCredit() || workflow.GetVersion(ctx, "flat-by-credit", workflow.DefaultVersion, 1) < 1 {
		return nil
	}
	var c *activities.Coordinator
	var out activities.FlatGroupsResult
	if err := workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("groups of step %d", w.step)), c.FlatGroups, in).Get(ctx, &out); err != nil {
		return err
	}
	for i, place := range places {
		w.flatAt[place] = out.Flat[i]
	}
	return nil
}

// stillFlat counts the groups that are trained although they are flat.
func (w *wave) stillFlat() int {
	n := 0
	for _, flat := range w.flatAt {
		if flat {
			n++
		}
	}
	return n
}

// note adds to what describes the step.
func (w *wave) note(metrics map[string]float64) {
	if w.metrics == nil {
		w.metrics = map[string]float64{}
	}
	maps.Copy(w.metrics, metrics)
}

// quarantine puts on record that the task of an errand can't be trained on.
func (t *trainingRun) quarantine(ctx workflow.Context, w *wave, e errand) error {
	q := Quarantine{Index: e.index, Step: w.step, Reason: w.results[e.place].Quarantine}
	w.quarantined = append(w.quarantined, q)
	var c *activities.Coordinator
	return workflow.ExecuteActivity(coordination(ctx, fmt.Sprintf("task %d of step %d", e.task, w.step)), c.RecordQuarantine, activities.RecordQuarantineInput{
		Run: t.Run, Policy: model.DefaultPolicy, Step: w.step, Task: e.task, Index: e.index, Reserve: e.kind == trace.Reserve, Reason: q.Reason,
	}).Get(ctx, nil)
}
