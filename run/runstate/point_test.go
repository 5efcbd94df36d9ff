package runstate_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fulgurite/fulgurite/run/runstate"
)

// readHistory returns a recorded history.
func readHistory(t *testing.T, file string) (run string, events []*history.HistoryEvent) {
	t.Helper()
	data, err := os.ReadFile("../../testsuite/histories/" + file + ".json")
	require.NoError(t, err)
	var r struct {
		WorkflowID string          `json:"workflow_id"`
		History    json.RawMessage `json:"history"`
	}
	require.NoError(t, json.Unmarshal(data, &r))
	var h history.History
	require.NoError(t, protojson.Unmarshal(r.History, &h))
	return r.WorkflowID, h.Events
}

// cut returns a history as it was when its workflow was terminated after n events.
func cut(events []*history.HistoryEvent, n int) []*history.HistoryEvent { return events[:n] }

func TestNothingIsPendingInWhatARunGoesOnFrom(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"training-plain", "training-lag", "training-sampled", "training-refilled", "training-resumed", "training-approval"} {
		run, events := readHistory(t, file)
		for n := 5; n <= len(events); n++ {
			at, _ := runstate.Point(run, cut(events, n))
			if at == 0 {
				continue // terminated before its first workflow task was done
			}
			require.Equal(t, enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, events[at-1].EventType)
			// A child that was asked for before must have ended before.
			open := map[int64]bool{}
			for _, e := range events[:at-1] {
				switch e.EventType {
				case enums.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
					open[e.EventId] = true
				case enums.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED:
					delete(open, e.GetChildWorkflowExecutionCompletedEventAttributes().InitiatedEventId)
				}
			}
			require.Empty(t, open, "%s, terminated after event %d, goes on from %d", file, n, at)
		}
	}
}

func TestAFailedRunGoesOnFromWhatFailed(t *testing.T) {
	t.Parallel()
	run, events := readHistory(t, "training-failed")
	at, whole := runstate.Point(run, events)
	asked := map[int64]int64{} // the workflow task by child
	for _, e := range events {
		if a := e.GetStartChildWorkflowExecutionInitiatedEventAttributes(); a != nil {
			asked[e.EventId] = a.WorkflowTaskCompletedEventId
		}
		if a := e.GetChildWorkflowExecutionFailedEventAttributes(); a != nil {
			require.Equal(t, asked[a.InitiatedEventId], at)
		}
	}
	require.NotEmpty(t, asked)
	require.True(t, whole)
}
