package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
)

// stoppedByBudget stands for the person who asks for a stop, where a budget does.
const stoppedByBudget = "the budget"

// checkBudget stops the run if its budget is used up. It is called before a step begins, and
// in a search before each round.
func (t *trainingRun) checkBudget(ctx workflow.Context) error {
	for {
		budget := t.specAt(t.started() + 1).Budget
		if budget == nil || t.Stop != nil {
			return nil
		}
		var c *activities.Coordinator
		var r activities.CheckBudgetResult
		err := workflow.ExecuteActivity(coordination(ctx, "the budget"), c.CheckBudget, activities.CheckBudgetInput{
			Run: t.Run, Budget: *budget,
		}).Get(ctx, &r)
		switch {
		case err != nil || r.UsedUp == "" || t.Stop != nil:
			return err
		case *t.specAt(t.started() + 1).Budget != *budget:
			continue // a person has changed it in the meantime
		}
		last, err := t.begun(ctx)
		switch {
		case err != nil || t.Stop != nil:
			return err
		case *t.specAt(t.started() + 1).Budget != *budget:
			continue
		}
		t.Stop, t.Paused = &record.Stop{By: stoppedByBudget, Reason: r.UsedUp, After: last}, false
		workflow.SetCurrentDetails(ctx, t.details())
		return nil
	}
}
