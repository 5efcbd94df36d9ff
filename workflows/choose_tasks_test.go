package workflows_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// drawOf returns the task at a place of a step's choice, in these tests.
func drawOf(step, place int) int { return (7*step + place) % 50 }

// choosing executes a run with a curriculum and returns what it asked for, in order.
func choosing(t *testing.T, fake *fakeActivities, lag int) (asked []activities.ChooseTasksInput) {
	t.Helper()
	s := testSpec()
	s.Training.Curriculum, s.Training.Lag = &spec.Curriculum{Type: spec.CurriculumBand}, lag
	s = s.WithDefaults()
	env := fake.environment(s)
	var c *activities.Coordinator
	env.OnActivity(c.ChooseTasks, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ChooseTasksInput) (activities.ChooseTasksResult, error) {
		fake.locked(func() { asked = append(asked, in) })
		out := activities.ChooseTasksResult{Text: "some", Metrics: map[string]float64{"curriculum/band": float64(in.Step)}}
		for k := range in.Count {
			out.Tasks = append(out.Tasks, drawOf(in.Step, in.First+k))
		}
		return out, nil
	})
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	return asked
}

func TestAStepAttemptsWhatItsCurriculumChooses(t *testing.T) {
	t.Parallel()
	for lag := range 3 {
		// The second task of step 1 can't be graded, and neither the one that replaces it.
		fake := &fakeActivities{score: func(int, record.Kind) float64 { return 0.5 }, taskFaults: map[int]string{drawOf(1, 1): "no answer", drawOf(1, 3): "no answer"}}
		asked := choosing(t, fake, lag)
		var batches, reserves []activities.ChooseTasksInput
		for _, in := range asked {
			if in.First == 0 {
				batches = append(batches, in)
			} else {
				reserves = append(reserves, in)
			}
		}
		require.Len(t, batches, 4)
		for i, in := range batches {
			require.Equal(t, activities.ChooseTasksInput{Run: "run", Policy: "main", Step: i + 1, Count: 3}, in, "in the order of steps, lag %d", lag)
		}
		for i, in := range reserves {
			require.Equal(t, activities.ChooseTasksInput{Run: "run", Policy: "main", Step: 1, First: 3 + i, Count: 1}, in)
		}
		require.Len(t, reserves, 2)
		for _, in := range fake.rollouts {
			place := in.Rollout.Task - (in.Rollout.Step-1)*3
			switch in.Rollout.Kind {
			case record.Reserve:
				place = 3 + in.Rollout.Task
			case record.Train:
			default:
				continue
			}
			require.Equal(t, drawOf(in.Rollout.Step, place), in.Index, "%s", in.Rollout)
		}
		for i, step := range fake.recorded {
			require.InDelta(t, float64(i+1), step.Metrics["curriculum/band"], 0)
		}
	}
}

func TestARunWhoseCurriculumHasNoTaskLeftFails(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(int, record.Kind) float64 { return 0.5 }}
	s := testSpec()
	s.Training.Curriculum, s.Training.Lag = &spec.Curriculum{Type: spec.CurriculumBand}, 1
	s = s.WithDefaults()
	env := fake.environment(s)
	var c *activities.Coordinator
	env.OnActivity(c.ChooseTasks, mock.Anything, mock.Anything).Return(activities.ChooseTasksResult{},
		temporal.NewNonRetryableApplicationError("no task is left", activities.ErrTypeInvalid, errors.New("none")))
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.ErrorContains(t, env.GetWorkflowError(), "no task is left")
	require.Len(t, fake.finished, 1)
}

func TestNoActivityChoosesWithoutACurriculum(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: func(int, record.Kind) float64 { return 0.5 }}
	s := testSpec()
	s.Training.Curriculum = &spec.Curriculum{Type: spec.CurriculumUniform}
	env := fake.environment(s) // which has no such activity
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
}
