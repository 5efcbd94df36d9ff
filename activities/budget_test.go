package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// spending is a ledger of a run that has used something.
type spending struct {
	activities.Ledger
	spent record.Spent
}

func (s spending) Spent(context.Context, string) (record.Spent, error) { return s.spent, nil }

func TestEachPartOfABudgetEndsARun(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	w.coordinator.Ledger = spending{w.store, record.Spent{Calls: 10, Tokens: 70}}
	for budget, want := range map[spec.Budget]string{
		{Calls: 11, Tokens: 71, Hours: 1}: "^$",
		{Calls: 10}:                       `^budget\.calls is used up, 10 of 10$`,
		{Tokens: 70}:                      `^budget\.tokens is used up, 70 of 70$`,
		{Hours: 1e-9}:                     `^budget\.hours is used up, \d\.\d\d of 1e-09$`,
	} {
		got, err := do[activities.CheckBudgetResult](t, w.coordinator.CheckBudget, activities.CheckBudgetInput{Run: "demo", Budget: budget})
		require.NoError(t, err)
		require.Regexp(t, want, got.UsedUp)
	}
}

func TestTheLastStepIsThatOfTheNewestVersion(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	for step, want := range []int{0, 1} {
		if step > 0 {
			_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(step, w.groups(step, 4)))
			require.NoError(t, err)
		}
		got, err := do[activities.LastStepResult](t, w.coordinator.LastStep, activities.LastStepInput{Run: "demo"})
		require.NoError(t, err)
		require.Equal(t, want, got.Step)
	}
	got, err := do[activities.LastStepResult](t, w.coordinator.LastStep, activities.LastStepInput{Run: "unprepared"})
	require.NoError(t, err)
	require.Zero(t, got.Step)
}
