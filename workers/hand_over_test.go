package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/workers"
)

// draining returns an environment whose worker stops, and gives activities a moment.
func draining() *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	stopping := make(chan struct{})
	close(stopping)
	env.SetWorkerStopChannel(stopping)
	env.SetWorkerOptions(workers.Options(workers.Tuning{Drain: time.Millisecond}))
	return env
}

// The server asks another worker as soon as it hears of the failure, not once it has missed
// heartbeats.
func TestADrainedWorkerHandsOverWhatItHasNotFinished(t *testing.T) {
	t.Parallel()
	env := draining()
	endless := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", temporal.NewNonRetryableApplicationError("its agent was killed", "Invalid", context.Cause(ctx))
	}
	env.RegisterActivity(endless)
	_, err := env.ExecuteActivity(endless)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.False(t, failure.NonRetryable(), "whatever the cut made of it")
	require.Equal(t, "the worker is being drained: another one goes on", failure.Message())
}

func TestWhatADrainedWorkerFinishesCounts(t *testing.T) {
	t.Parallel()
	env := draining()
	late := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "done", nil
	}
	env.RegisterActivity(late)
	value, err := env.ExecuteActivity(late)
	require.NoError(t, err)
	var out string
	require.NoError(t, value.Get(&out))
	require.Equal(t, "done", out)
}
