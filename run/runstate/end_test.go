package runstate_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/runstate"
)

func terminated(by, reason string) *history.HistoryEvent {
	return &history.HistoryEvent{Attributes: &history.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{
		WorkflowExecutionTerminatedEventAttributes: &history.WorkflowExecutionTerminatedEventAttributes{Identity: by, Reason: reason},
	}}
}

// Temporal terminates what it deletes, and takes a moment to remove it. A process that
// asks within that moment must not assume that the run can go on.
func TestARunThatIsBeingDeletedIsDeletedAndNotTerminated(t *testing.T) {
	t.Parallel()
	status, result := runstate.End(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, terminated("history-service", "Delete workflow execution"))
	require.Equal(t, record.Deleted, status)
	require.Contains(t, record.Run{Result: result}.Failure().Error, "no longer in Temporal")
}

func TestWhoTerminatedARunAndWhyIsInItsResult(t *testing.T) {
	t.Parallel()
	status, result := runstate.End(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, terminated("ada@laptop", "Delete workflow execution"))
	require.Equal(t, record.Terminated, status)
	require.Equal(t, record.Failure{By: "ada@laptop", Error: "terminated by ada@laptop: Delete workflow execution"}, record.Run{Result: result}.Failure())
	status, result = runstate.End(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, terminated("", ""))
	require.Equal(t, record.Terminated, status)
	require.Equal(t, "terminated by somebody: no reason was given", record.Run{Result: result}.Failure().Error)
}
