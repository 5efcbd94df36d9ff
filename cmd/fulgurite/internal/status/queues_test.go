package status

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/workflows"
)

func TestATrainerThatWorksIsNoQueueThatNobodyPolls(t *testing.T) {
	t.Parallel()
	server, err := devserver.Start(t.Context(), devserver.Options{Log: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	c, err := server.Client(t.Context())
	require.NoError(t, err)
	defer c.Close()

	started, end := make(chan struct{}), make(chan struct{})
	w := worker.New(c, workflows.QueueTraining, worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "TrainStep").Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "TrainingWorkflow"})
	w.RegisterActivityWithOptions(func(context.Context) error {
		close(started)
		<-end
		return nil
	}, activity.RegisterOptions{Name: "TrainStep"})
	require.NoError(t, w.Start())
	defer w.Stop()

	works, err := runstate.TrainerWorks(t.Context(), c)
	require.NoError(t, err)
	require.False(t, works)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "run", TaskQueue: workflows.QueueTraining}, "TrainingWorkflow")
	require.NoError(t, err)
	<-started
	require.Eventually(t, func() bool { // the list lags a little behind
		works, err := runstate.TrainerWorks(t.Context(), c)
		return err == nil && works
	}, time.Minute, 10*time.Millisecond)
	close(end)
	require.NoError(t, run.Get(t.Context(), nil))
	works, err = runstate.TrainerWorks(t.Context(), c)
	require.NoError(t, err)
	require.False(t, works)
}
