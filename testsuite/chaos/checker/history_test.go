package checker_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// says encodes a value as a message of a workflow.
func says(t *testing.T, v any) *common.Payloads {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return &common.Payloads{Payloads: []*common.Payload{{Data: data}}}
}

type object map[string]any

// fakeHistory builds a history, numbering its events.
type fakeHistory struct {
	t      *testing.T
	events []*history.HistoryEvent
}

func (h *fakeHistory) add(e *history.HistoryEvent) int64 {
	e.EventId = int64(len(h.events) + 1)
	h.events = append(h.events, e)
	return e.EventId
}

func (h *fakeHistory) child(kind string, step, task int) int64 {
	return h.add(&history.HistoryEvent{Attributes: &history.HistoryEvent_StartChildWorkflowExecutionInitiatedEventAttributes{
		StartChildWorkflowExecutionInitiatedEventAttributes: &history.StartChildWorkflowExecutionInitiatedEventAttributes{
			WorkflowType: &common.WorkflowType{Name: "RolloutWorkflow"},
			Input:        says(h.t, object{"kind": kind, "step": step, "task": task, "index": 3, "version": step - 1, "samples": 2}),
		},
	}})
}

func (h *fakeHistory) returned(child int64, result any) {
	h.add(&history.HistoryEvent{Attributes: &history.HistoryEvent_ChildWorkflowExecutionCompletedEventAttributes{
		ChildWorkflowExecutionCompletedEventAttributes: &history.ChildWorkflowExecutionCompletedEventAttributes{
			InitiatedEventId: child, Result: says(h.t, result),
		},
	}})
}

func (h *fakeHistory) activity(name string, in, result any) {
	scheduled := h.add(&history.HistoryEvent{Attributes: &history.HistoryEvent_ActivityTaskScheduledEventAttributes{
		ActivityTaskScheduledEventAttributes: &history.ActivityTaskScheduledEventAttributes{
			ActivityType: &common.ActivityType{Name: name}, Input: says(h.t, in),
		},
	}})
	h.add(&history.HistoryEvent{Attributes: &history.HistoryEvent_ActivityTaskCompletedEventAttributes{
		ActivityTaskCompletedEventAttributes: &history.ActivityTaskCompletedEventAttributes{ScheduledEventId: scheduled, Result: says(h.t, result)},
	}})
}

func TestAHistoryTellsWhatWasIssuedAndTrained(t *testing.T) {
	t.Parallel()
	first := fakeHistory{t: t}
	group, quarantined := first.child("train", 1, 0), first.child("train", 1, 1)
	first.returned(quarantined, object{"group": object{"attempts": []int{1, 1}}, "quarantine": "can't be graded"})
	first.returned(group, object{"group": object{"attempts": []int{2, 1}, "rewards": []float64{0, 1}}})
	first.activity("AssignCredit", object{"step": 1}, object{"batch": "sha256:b1"})
	first.activity("TrainStep", object{"step": 1, "batch": "sha256:b1"}, object{"number": 1})
	first.activity("TrainCritic", object{"step": 1, "batch": "sha256:b1"}, object{"number": 1})
	first.activity("RecordStep", object{"step": 1}, nil)
	second := fakeHistory{t: t} // after a continue-as-new
	second.child("reserve", 2, 0)
	second.add(&history.HistoryEvent{Attributes: &history.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
		WorkflowExecutionCompletedEventAttributes: &history.WorkflowExecutionCompletedEventAttributes{Result: says(t, object{"weights": "sha256:w"})},
	}})

	s, err := checker.ReadHistory(first.events, second.events)
	require.NoError(t, err)
	require.Equal(t, []checker.Issued{
		{Kind: "train", Step: 1, Task: 0, Index: 3, Version: 0, Samples: 2, Attempts: []int{2, 1}, Rewards: []float64{0, 1}},
		{Kind: "train", Step: 1, Task: 1, Index: 3, Version: 0, Samples: 2, Attempts: []int{1, 1}, Quarantine: "can't be graded"},
		{Kind: "reserve", Step: 2, Task: 0, Index: 3, Version: 1, Samples: 2},
	}, s.Issued)
	require.Equal(t, map[int]string{1: "sha256:b1"}, s.Batches)
	require.Equal(t, map[int]string{1: "sha256:b1"}, s.Updates)
	require.Equal(t, map[int]string{1: "sha256:b1"}, s.CriticUpdates)
	require.Empty(t, s.Repeated)
	require.True(t, s.Completed)
	require.Equal(t, "sha256:w", s.Weights)
}

func TestAHistoryTellsOfASecondUpdate(t *testing.T) {
	t.Parallel()
	h := fakeHistory{t: t}
	for range 2 {
		h.activity("AssignCredit", object{"step": 1}, object{"batch": "sha256:b1"})
		h.activity("TrainStep", object{"step": 1, "batch": "sha256:b1"}, object{"number": 1})
	}
	s, err := checker.ReadHistory(h.events)
	require.NoError(t, err)
	require.Equal(t, []string{"AssignCredit of step 1", "TrainStep of step 1"}, s.Repeated)
	require.False(t, s.Completed)
}

func TestAHistoryThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	h := fakeHistory{t: t}
	h.activity("AssignCredit", "no object", nil)
	_, err := checker.ReadHistory(h.events)
	require.ErrorContains(t, err, "read event 1")
}
