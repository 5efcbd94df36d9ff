package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// fakePhases are the activities of three phases. ends are by run; the workflow is cancelled while
// it waits for a run without one.
type fakePhases struct {
	ends      map[string]activities.AwaitPhaseResult
	started   []activities.StartPhaseInput
	cancelled []string
}

func (f *fakePhases) environment() *testsuite.TestWorkflowEnvironment {
	env := quiet().NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "r", TaskQueue: workflows.QueueTraining})
	env.RegisterWorkflow(workflows.PhasesWorkflow)
	var c *activities.Coordinator
	env.OnActivity(c.PreparePhases, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.PreparePhasesInput) (activities.PreparePhasesResult, error) {
		if string(in.Spec) != `{"phases":[]}` || in.Name != "r" {
			return activities.PreparePhasesResult{}, errors.New("another input")
		}
		return activities.PreparePhasesResult{Spec: json.RawMessage(`{"prepared":true}`), Phases: []activities.Phase{
			{Number: 1, Type: spec.PhasePrompts, Run: "r-1-prompts"}, {Number: 2, Type: spec.PhaseWeights, Run: "r-2-weights"}, {Number: 3, Type: spec.PhasePrompts, Run: "r-3-prompts"},
		}}, nil
	})
	env.OnActivity(c.StartPhase, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.StartPhaseInput) error {
		f.started = append(f.started, in)
		return nil
	})
	env.OnActivity(c.AwaitPhase, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.AwaitPhaseInput) (activities.AwaitPhaseResult, error) {
		if end, ok := f.ends[in.Run]; ok {
			return end, nil
		}
		env.CancelWorkflow()
		return activities.AwaitPhaseResult{}, context.Canceled
	})
	env.OnActivity(c.CancelPhase, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.CancelPhaseInput) error {
		f.cancelled = append(f.cancelled, in.Run)
		f.ends[in.Run] = activities.AwaitPhaseResult{Status: record.Cancelled, Error: "cancelled", Retry: true}
		return nil
	})
	return env
}

func phasesInput() workflows.PhasesInput { return workflows.PhasesInput{Spec: []byte(`{"phases":[]}`)} }

func TestPhasesStartFromWhatWasPromotedBefore(t *testing.T) {
	t.Parallel()
	before, after := 0.25, 0.75
	f := &fakePhases{ends: map[string]activities.AwaitPhaseResult{
		"r-1-prompts": {Status: record.Completed, Promoted: 1, Gate: activities.PhaseRewards{Before: &before, After: &after}},
		"r-2-weights": {Status: record.Stopped, Promoted: 5},
		"r-3-prompts": {Status: record.Completed},
	}}
	env := f.environment()
	env.ExecuteWorkflow(workflows.PhasesWorkflow, phasesInput())
	var out workflows.PhasesProgress
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Len(t, f.started, 3)
	require.Equal(t, []spec.PhaseStart{{}, {Prompts: "r-1-prompts@1"}, {Prompts: "r-1-prompts@1", Weights: "r-2-weights@5"}},
		[]spec.PhaseStart{f.started[0].From, f.started[1].From, f.started[2].From})
	require.JSONEq(t, `{"prepared":true}`, string(f.started[2].Spec))
	require.Equal(t, []record.Status{record.Completed, record.Stopped, record.Completed}, []record.Status{out.Phases[0].Status, out.Phases[1].Status, out.Phases[2].Status})
	require.Equal(t, []int{1, 5, 0}, []int{*out.Phases[0].Promoted, *out.Phases[1].Promoted, *out.Phases[2].Promoted})
	require.InDelta(t, after, *out.Phases[0].Gate.After, 0)
	value, err := env.QueryWorkflow(workflows.QueryProgress)
	require.NoError(t, err)
	var progress workflows.PhasesProgress
	require.NoError(t, value.Get(&progress))
	require.Equal(t, out, progress)
}

func TestAFailedPhaseEndsThePhasesAndSaysHowTheyGoOn(t *testing.T) {
	t.Parallel()
	for want, end := range map[string]activities.AwaitPhaseResult{
		"phase 2 (run r-2-weights) failed: no disk; once the cause is fixed, `fulgurite retry r` lets it go on with this phase": {Status: record.Failed, Error: "no disk", Retry: true},
		"phase 2 (run r-2-weights) refused: no tasks; mend the spec":                                                            {Status: record.Refused, Error: "no tasks"},
		"phase 2 (run r-2-weights) deleted: gone; start the spec again under another name":                                      {Status: record.Deleted, Error: "gone"},
	} {
		f := &fakePhases{ends: map[string]activities.AwaitPhaseResult{"r-1-prompts": {Status: record.Completed, Promoted: 1}, "r-2-weights": end}}
		env := f.environment()
		env.ExecuteWorkflow(workflows.PhasesWorkflow, phasesInput())
		err := env.GetWorkflowError()
		require.ErrorContains(t, err, want)
		var failure *temporal.ApplicationError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, workflows.ErrTypePhase, failure.Type())
		require.Len(t, f.started, 2, "the third does not begin")
	}
}

func TestCancellingThePhasesCancelsTheOneUnderWay(t *testing.T) {
	t.Parallel()
	f := &fakePhases{ends: map[string]activities.AwaitPhaseResult{"r-1-prompts": {Status: record.Completed, Promoted: 1}}}
	env := f.environment()
	env.ExecuteWorkflow(workflows.PhasesWorkflow, phasesInput())
	require.True(t, temporal.IsCanceledError(env.GetWorkflowError()))
	require.Equal(t, []string{"r-2-weights"}, f.cancelled)
	value, err := env.QueryWorkflow(workflows.QueryProgress)
	require.NoError(t, err)
	var progress workflows.PhasesProgress
	require.NoError(t, value.Get(&progress))
	require.Equal(t, record.Cancelled, progress.Phases[1].Status)
	require.Empty(t, progress.Phases[2].Status)
}
