package runstate_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workflows"
)

// runs are runs on record whose workflows do nothing until they are told to.
type runs struct {
	t      *testing.T
	client client.Client
	store  *store.Store
}

func startRuns(t *testing.T) runs {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a Temporal server")
	}
	server, err := devserver.Start(t.Context(), devserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	c, err := client.DialContext(t.Context(), client.Options{HostPort: server.Address(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	w := worker.New(c, workflows.QueueTraining, worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
		return nil
	}, workflow.RegisterOptions{Name: workflows.TypeTraining})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return runs{t, c, s}
}

// start starts a run, which is under way.
func (r runs) start(name string) record.Run {
	r.t.Helper()
	w, err := r.client.ExecuteWorkflow(r.t.Context(), client.StartWorkflowOptions{ID: name, TaskQueue: workflows.QueueTraining}, workflows.TypeTraining)
	require.NoError(r.t, err)
	_, err = r.client.QueryWorkflow(r.t.Context(), name, "", client.QueryTypeStackTrace) // after its first task
	require.NoError(r.t, err)
	run, _, err := r.store.CreateRun(r.t.Context(), record.Run{Name: name, WorkflowID: name, ExecutionID: w.GetRunID(), Spec: json.RawMessage("{}")})
	require.NoError(r.t, err)
	return run
}

// status returns the status of a workflow, as deleted if Temporal does not know it.
func (r runs) status(name string) enums.WorkflowExecutionStatus {
	r.t.Helper()
	d, err := r.client.DescribeWorkflowExecution(r.t.Context(), name, "")
	var unknown *serviceerror.NotFound
	if errors.As(err, &unknown) {
		return enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
	}
	require.NoError(r.t, err)
	return d.WorkflowExecutionInfo.Status
}

func (r runs) mend(c client.Client) runstate.Mended {
	r.t.Helper()
	mended, err := runstate.Mender{Client: c, Namespace: devserver.DefaultNamespace, Store: r.store}.Mend(r.t.Context())
	require.NoError(r.t, err)
	return mended
}

// Temporal is from a moment at which the runs had not ended.
func TestMendingRevivesNoRunThatHasEnded(t *testing.T) {
	t.Parallel()
	r := startRuns(t)
	r.start("stopped")
	require.NoError(t, r.store.FinishRun(t.Context(), "stopped", record.Stopped, []byte("{}")))
	retried := r.start("retried")
	require.NoError(t, r.store.FinishRun(t.Context(), "retried", record.Failed, []byte("{}")))
	// Somebody has let this one go on, which the record does not know yet.
	_, err := r.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: devserver.DefaultNamespace, WorkflowExecution: &common.WorkflowExecution{WorkflowId: "retried", RunId: retried.ExecutionID},
		WorkflowTaskFinishEventId: 4, RequestId: "retry", Reason: "a test",
	})
	require.NoError(t, err)
	_, err = r.client.QueryWorkflow(t.Context(), "retried", "", client.QueryTypeStackTrace)
	require.NoError(t, err)
	r.start("going")

	mended := r.mend(r.client)
	require.Equal(t, []string{"stopped"}, mended.Ended)
	require.ElementsMatch(t, []string{"retried", "going"}, mended.Rewound)
	require.Empty(t, mended.Restarted)
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, r.status("stopped"))
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, r.status("retried"))
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, r.status("going"))
	run, err := r.store.Run(t.Context(), "stopped")
	require.NoError(t, err)
	require.Equal(t, record.Stopped, run.Status)
	require.Empty(t, r.mend(r.client).Ended)
}

// unlisted is a Temporal whose lists are from before all workflows.
type unlisted struct{ client.Client }

func (unlisted) ListWorkflow(context.Context, *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return &workflowservice.ListWorkflowExecutionsResponse{}, nil
}

func TestMendingRemovesAForgottenRunThatTemporalDoesNotList(t *testing.T) {
	t.Parallel()
	r := startRuns(t)
	run := r.start("forgotten")
	require.NoError(t, r.store.FinishRun(t.Context(), run.Name, record.Completed, []byte("{}")))
	run, err := r.store.Run(t.Context(), run.Name)
	require.NoError(t, err)
	_, _, err = r.store.BeginForgetting(t.Context(), run, record.Forgotten{Run: run.Name, What: record.ForgottenRun, By: "ann"})
	require.NoError(t, err)
	mended := r.mend(unlisted{r.client})
	require.Equal(t, []string{"forgotten"}, mended.Removed)
	require.Empty(t, mended.Rewound)
	require.Eventually(t, func() bool { return r.status("forgotten") != enums.WORKFLOW_EXECUTION_STATUS_RUNNING }, 10*time.Second, 10*time.Millisecond)
}
