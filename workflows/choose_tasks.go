package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/trace"
)

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
	n := t.Splits[trace.Train].Count
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
	n := t.Splits[trace.Train].Count
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
