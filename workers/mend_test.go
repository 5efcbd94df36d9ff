package workers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/worker"

	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workflows"
)

// A process that only runs workflows holds no lease.
func TestNothingIsMendedWhileAProcessRunsWorkflows(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a Temporal server")
	}
	server, err := devserver.Start(t.Context(), devserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	database, blobs := paired(t)
	mend := func(log *output) int {
		return workers.Run(t.Context(), []string{"mend", "--store", database, "--blobs", blobs, "--temporal-address", server.Address(), "--wait", "2s"}, log)
	}
	var alone, beside output
	require.Zero(t, mend(&alone), alone.String())
	require.Contains(t, alone.String(), "runs go on from what is on record")

	temporal, err := server.Client(t.Context())
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	w := worker.New(temporal, workflows.QueueTraining, worker.Options{Identity: "the-cpu"})
	workers.Workflows(w)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	require.Eventually(t, func() bool {
		d, err := temporal.DescribeTaskQueue(t.Context(), workflows.QueueTraining, enums.TASK_QUEUE_TYPE_WORKFLOW)
		return err == nil && len(d.Pollers) > 0
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, workers.ExitFailed, mend(&beside))
	require.Contains(t, beside.String(), "the-cpu polled queue training")
	require.Contains(t, beside.String(), "stop all processes of the fleet first")
}
