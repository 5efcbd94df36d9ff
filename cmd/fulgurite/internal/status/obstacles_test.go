package status

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workflows"
)

// A run is blocked by an activity two workflows below it, by its own code, by a queue
// without a worker and by services that are not up. Each is found, with its error.
func TestAllThatBlocksARunIsFound(t *testing.T) {
	t.Parallel()
	server, err := devserver.Start(t.Context(), devserver.Options{Log: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	c, err := server.Client(t.Context())
	require.NoError(t, err)
	defer c.Close()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.Migrate(t.Context()))

	w := worker.New(c, workflows.QueueTraining, worker.Options{})
	below := func(ctx workflow.Context, depth int) error {
		if depth < 2 {
			return workflow.ExecuteChildWorkflow(ctx, "below", depth+1).Get(ctx, nil)
		}
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "ask").Get(ctx, nil)
	}
	w.RegisterWorkflowWithOptions(below, workflow.RegisterOptions{Name: "below"})
	w.RegisterWorkflowWithOptions(func(workflow.Context) error { panic("its code is wrong") }, workflow.RegisterOptions{Name: "wrong"})
	w.RegisterActivityWithOptions(func(context.Context) error { return errors.New("nobody answers") }, activity.RegisterOptions{Name: "ask"})
	require.NoError(t, w.Start())
	defer w.Stop()
	for _, name := range []string{"below", "wrong"} {
		options := client.StartWorkflowOptions{ID: name, TaskQueue: workflows.QueueTraining}
		var arguments []any
		if name == "below" {
			arguments = []any{0}
		}
		_, err = c.ExecuteWorkflow(t.Context(), options, name, arguments...)
		require.NoError(t, err)
	}

	for run, want := range map[string]string{"below": "ask of .+ is blocked, attempt ([3-9]|\\d\\d): nobody answers", "wrong": "workflow task of wrong is blocked, attempt ([3-9]|\\d\\d): .*its code is wrong"} {
		var found runstate.Obstacles
		require.Eventually(t, func() bool {
			found, err = runstate.Find(t.Context(), c, run, "nobody", db)
			return err == nil && len(found.Blocked) > 0
		}, time.Minute, 50*time.Millisecond, run)
		lines := found.Lines()
		require.Regexp(t, "^"+want, lines[len(lines)-1])
		require.Contains(t, found.Idle, "nobody")
		require.NotContains(t, found.Idle, workflows.QueueTraining)
		require.Equal(t, []record.Role{record.Gateway, record.Sampler}, found.Absent)
	}
	_, err = db.AcquireLease(t.Context(), record.Lease{Role: record.Gateway, Name: "one", URL: "http://127.0.0.1:1"}, time.Minute, true)
	require.NoError(t, err)
	found, err := runstate.Find(t.Context(), c, "below", "nobody", db)
	require.NoError(t, err)
	require.Contains(t, found.Lines(), "no sampler is up: agents wait until one is")
	require.NotContains(t, found.Lines(), "no gateway is up: agents wait until one is")
}
