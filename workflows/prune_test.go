package workflows_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/workflows"
)

// pruningEnvironment returns an environment in which a plan removes what planned says, and in
// which removals go wrong a number of times first. removed counts the tries.
func pruningEnvironment(planned activities.PruneResult, failures int) (env *testsuite.TestWorkflowEnvironment, removed *int) {
	env = quiet().NewTestWorkflowEnvironment()
	var c *activities.Coordinator
	removed = new(int)
	env.OnActivity(c.PlanPruning, mock.Anything, mock.Anything).Return(planned, nil)
	env.OnActivity(c.PruneRuns, mock.Anything, mock.Anything).Return(func(context.Context, activities.PruneInput) (activities.PruneResult, error) {
		if *removed++; *removed <= failures {
			return activities.PruneResult{}, errors.New("killed")
		}
		return activities.PruneResult{Runs: 1, Bytes: 1, Message: "what was left"}, nil
	})
	return env, removed
}

func TestAPruningReturnsAllThatItRemovedHoweverOftenItWasInterrupted(t *testing.T) {
	t.Parallel()
	plan := activities.PruneResult{Selected: 3, Ended: 2, Runs: 2, Files: 5, Bytes: 4096, Message: "about 4 KiB of 2 runs: a, b"}
	env, removed := pruningEnvironment(plan, 2)
	env.ExecuteWorkflow(workflows.PruneWorkflow, activities.PruneInput{Rule: retention.PruneRule{Runs: "*", OlderThan: time.Hour, Records: true}, By: "me"})
	var out activities.PruneResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 3, *removed)
	plan.Message = "removed about 4 KiB of 2 runs: a, b"
	require.Equal(t, plan, out)
}

func TestAPruningWithNothingToRemoveRemovesNothing(t *testing.T) {
	t.Parallel()
	plan := activities.PruneResult{Selected: 3, Message: "nothing to remove"}
	env, removed := pruningEnvironment(plan, 0)
	env.ExecuteWorkflow(workflows.PruneWorkflow, activities.PruneInput{Rule: retention.PruneRule{Runs: "*", Records: true}, By: "me"})
	var out activities.PruneResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, plan, out)
	require.Zero(t, *removed)
}
