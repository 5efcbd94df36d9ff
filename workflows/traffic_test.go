package workflows_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// trafficSpec is the spec of a run that learns from conversations, in at most three steps.
func trafficSpec(experiment bool) spec.Spec {
	s := testSpec()
	s.Tasks.Train, s.Training.Steps, s.Evaluation.Every = "", 3, 1
	s.Traffic = &spec.Traffic{Train: &spec.TrafficTraining{}}
	if experiment {
		s.Traffic.Train.Experiment = &spec.TrafficExperiment{}
	}
	return s.WithDefaults()
}

// fakeTraffic decides what segments find and how experiments end.
type fakeTraffic struct {
	*fakeActivities
	// reason says why there is too little to learn from; empty if there is enough.
	reason func(step int) string
	// end says how the experiment with a candidate ends; it is called when it begins.
	end         func(candidate int) (activities.ExperimentResult, error)
	wait        time.Duration // until an experiment ends
	experiments []activities.ExperimentInput
	ended       []activities.EndExperimentInput
	// shadow says how a candidate replies in the shadow; lasting is how long that takes.
	shadow  func(candidate int) (activities.ShadowResult, error)
	lasting time.Duration
	shadows []activities.ShadowInput
}

func (f *fakeTraffic) environment(s spec.Spec) *testsuite.TestWorkflowEnvironment {
	env := f.fakeActivities.environment(s)
	var c *activities.Coordinator
	env.OnActivity(c.ChooseSegment, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ChooseSegmentInput) (out activities.ChooseSegmentResult, err error) {
		f.locked(func() { out = activities.ChooseSegmentResult{Replies: 40, Conversations: 30, Parent: f.pointer} })
		if f.reason != nil {
			out.Reason = f.reason(in.Step)
		}
		return out, nil
	})
	env.OnActivity(c.SegmentBatch, mock.Anything, mock.Anything).Return(activities.SegmentBatchResult{Batch: "sha256:segment", Metrics: map[string]float64{"reward/mean": 0.25}}, nil)
	env.OnActivity(c.RunExperiment, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ExperimentInput) (activities.ExperimentResult, error) {
		f.locked(func() { f.experiments = append(f.experiments, in) })
		return f.end(in.Candidate)
	}).After(f.wait)
	env.OnActivity(c.RunShadow, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ShadowInput) (activities.ShadowResult, error) {
		f.locked(func() { f.shadows = append(f.shadows, in) })
		return f.shadow(in.Candidate)
	}).After(f.lasting)
	env.OnActivity(c.EndExperiment, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.EndExperimentInput) error {
		f.locked(func() { f.ended = append(f.ended, in) })
		return nil
	})
	return env
}

// ask asks for a segment after a time, and returns what came of it.
func ask(env *testsuite.TestWorkflowEnvironment, id string, after time.Duration) *updateCallback {
	var a updateCallback
	env.RegisterDelayedCallback(func() { env.UpdateWorkflow(workflows.UpdateSegment, id, &a, workflows.SegmentInput{}) }, after)
	return &a
}

func TestASegmentIsAStepOfThePromotedVersion(t *testing.T) {
	t.Parallel()
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: func(version int, _ record.Kind) float64 { return []float64{0.5, 0.25, 0.75, 0.8}[version] }}}
	looks := 0
	fake.reason = func(int) string {
		if looks++; looks == 2 {
			return "3 judged replies of the 32 that it needs"
		}
		return ""
	}
	env := fake.environment(trafficSpec(false))
	one, two, three, four := ask(env, "1", time.Hour), ask(env, "2", 2*time.Hour), ask(env, "3", 3*time.Hour), ask(env, "4", 4*time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, "step 1 learned from 40 replies of 30 conversations; version 0 stays promoted", one.result.Message)
	require.Equal(t, "no step: 3 judged replies of the 32 that it needs", two.result.Message)
	require.Zero(t, two.result.Step)
	require.Equal(t, 2, three.result.Step)
	require.Contains(t, three.result.Message, "its version is promoted")
	require.Equal(t, 3, four.result.Step)
	var parents []int
	for _, in := range fake.trained {
		parents = append(parents, *in.Parent)
	}
	require.Equal(t, []int{0, 0, 2}, parents, "a refused version is no parent")
	require.Empty(t, fake.fakeActivities.batches, "no credit is assigned to rollouts")
	require.Equal(t, 3, out.Steps)
	require.Equal(t, 3, out.Promoted)
}

func TestRequestsThatWaitTogetherAreServedInTurn(t *testing.T) {
	t.Parallel()
	s := trafficSpec(false)
	s.Training.Steps = 2
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: constantScore}}
	looks := 0
	fake.reason = func(int) string {
		if looks++; looks == 2 {
			return "3 judged replies of the 32 that it needs"
		}
		return ""
	}
	env := fake.environment(s)
	one, two, three, four := ask(env, "1", time.Hour), ask(env, "2", time.Hour), ask(env, "3", time.Hour), ask(env, "4", time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, fake.trained, 2)
	require.Equal(t, 1, one.result.Step)
	require.Equal(t, "no step: 3 judged replies of the 32 that it needs", two.result.Message)
	require.Equal(t, 2, three.result.Step)
	require.Equal(t, "no step: the run ends", four.result.Message)
}

func TestAsksWhileTheRunIsPreparedAreServedLater(t *testing.T) {
	t.Parallel()
	s := trafficSpec(false)
	s.Training.Steps = 1
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: constantScore}}
	env := fake.environment(s)
	var set updateCallback
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(workflows.UpdateSet, "set", &set, workflows.SetInput{By: "ada", Values: map[string]float64{"training.optimizer.learning_rate": 0.25}})
	}, 0)
	one := ask(env, "1", 0)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, "set by ada from step 1", set.result.Message)
	require.Equal(t, 1, one.result.Step)
	require.Equal(t, map[string]float64{"training.optimizer.learning_rate": 0.25}, fake.trained[0].Set)
}

// Temporal makes the Updates after the place to which a run is reset again, at once.
func TestAStopThatComesAgainAfterAResetIsAfterTheStepsOnRecord(t *testing.T) {
	t.Parallel()
	for _, requests := range []int{0, 1, 2} {
		fake := &fakeTraffic{fakeActivities: &fakeActivities{score: constantScore, onRecord: 2}}
		env := fake.environment(trafficSpec(false))
		for i := range requests {
			ask(env, fmt.Sprint(i), 0)
		}
		var stop updateCallback
		env.RegisterDelayedCallback(func() {
			env.UpdateWorkflow(workflows.UpdateStop, "stop", &stop, workflows.ControlInput{By: "ada"})
		}, 0)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		var out workflows.TrainingResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.Equal(t, 2, stop.result.Step)
		require.Equal(t, 2, out.Steps)
		require.Equal(t, 2, out.Stopped.After)
	}
}

func TestAStopEndsARunThatWaitsForSegments(t *testing.T) {
	t.Parallel()
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: constantScore}}
	env := fake.environment(trafficSpec(false))
	var stop, late updateCallback
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(workflows.UpdateStop, "stop", &stop, workflows.ControlInput{By: "ada"})
		env.UpdateWorkflow(workflows.UpdateSegment, "late", &late, workflows.SegmentInput{})
	}, time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.NoError(t, stop.failed)
	require.ErrorContains(t, late.failed, "the run stops")
	require.Empty(t, fake.trained)
}

func TestARunOfTasksIsAskedForNoSegment(t *testing.T) {
	t.Parallel()
	fake := &fakeActivities{score: constantScore}
	env := fake.environment(testSpec())
	a := updateDuring(t, fake, env, 1, workflows.UpdateSegment, workflows.SegmentInput{})
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.ErrorContains(t, a.rejected, "its spec has no traffic.train")
}

func TestUsersDecideAboutACandidateThatPassedTheGate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end      activities.ExperimentResult
		failure  error
		promoted int
		verdict  string
	}{
		"better": {activities.ExperimentResult{Status: record.ExperimentPromoted, Reason: "users judge it better"}, nil, 1, ""},
		"worse":  {activities.ExperimentResult{Status: record.ExperimentWithdrawn, Reason: "users judge it worse"}, nil, 0, "withdrawn"},
		"failed": {activities.ExperimentResult{}, temporal.NewNonRetryableApplicationError("no such share", activities.ErrTypeInvalid, nil), 0, "ended"},
	} {
		s := trafficSpec(true)
		s.Training.Steps = 2
		fake := &fakeTraffic{
			fakeActivities: &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(min(version, 1)) }},
			end:            func(int) (activities.ExperimentResult, error) { return c.end, c.failure }, wait: 24 * time.Hour,
		}
		env := fake.environment(s)
		one, two, three := ask(env, "1", time.Hour), ask(env, "2", 2*time.Hour), ask(env, "3", 48*time.Hour)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		var out workflows.TrainingResult
		require.NoError(t, env.GetWorkflowResult(&out), name)
		require.Contains(t, one.result.Message, "its version is being compared with version 0 in use", name)
		require.Equal(t, "no step: version 1 is being compared with version 0 in use", two.result.Message, name)
		require.Equal(t, 2, three.result.Step, name)
		require.Equal(t, activities.ExperimentInput{Run: "run", Policy: model.DefaultPolicy, Candidate: 1, Control: 0}, fake.experiments[0], name)
		require.Equal(t, c.promoted, *fake.trained[1].Parent, name)
		if c.verdict != "" {
			require.Equal(t, c.verdict, fake.decided[0].Verdict, name)
			require.NotEmpty(t, fake.decided[0].Decision.Obstacle, name)
		}
	}
}

func TestAnExperimentEndsWithItsRun(t *testing.T) {
	t.Parallel()
	s := trafficSpec(true)
	s.Training.Steps = 1
	fake := &fakeTraffic{
		fakeActivities: &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}, wait: time.Hour,
		end: func(int) (activities.ExperimentResult, error) {
			return activities.ExperimentResult{Status: record.ExperimentEnded, Reason: "the run ends"}, nil
		},
	}
	env := fake.environment(s)
	ask(env, "1", time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Len(t, fake.ended, 1)
	require.Equal(t, "ended", fake.decided[0].Verdict)
	require.Zero(t, out.Promoted)
}

func TestAnExperimentGoesOnInTheNextExecution(t *testing.T) {
	t.Parallel()
	s := trafficSpec(true)
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: constantScore}, end: func(int) (activities.ExperimentResult, error) {
		return activities.ExperimentResult{Status: record.ExperimentPromoted}, nil
	}}
	env := fake.environment(s)
	state := &workflows.TrainingState{
		Run: "run", Spec: s, Splits: map[record.Kind]record.Split{record.Gate: {Count: 10}}, Started: true, Step: 3, Evaluated: 3, Promoted: 1,
		Experiment: &model.Decision{Candidate: 3, Promoted: 1, Accept: true},
	}
	env.ExecuteWorkflow(workflows.TrainingWorkflow, workflows.TrainingInput{Resume: state})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, []activities.ExperimentInput{{Run: "run", Policy: model.DefaultPolicy, Candidate: 3, Control: 1}}, fake.experiments)
	require.Equal(t, 3, fake.promoted[0].Version)
}

func TestATrafficWorkflowReturnsWhatCameOfItsRequest(t *testing.T) {
	t.Parallel()
	env := quiet().NewTestWorkflowEnvironment()
	var c *activities.Coordinator
	var asked []activities.RequestSegmentInput
	env.OnActivity(c.RequestSegment, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.RequestSegmentInput) (activities.RequestSegmentResult, error) {
		asked = append(asked, in)
		return activities.RequestSegmentResult{Step: 4, Message: "step 4 learned"}, nil
	})
	env.ExecuteWorkflow(workflows.TrafficWorkflow, workflows.TrafficInput{Run: "live"})
	var out activities.RequestSegmentResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 4, out.Step)
	require.Equal(t, "live", asked[0].Run)
	require.NotEmpty(t, asked[0].ID)
}

func TestARunThatWaitsForAPersonAtItsEndIsAskedForNoSegment(t *testing.T) {
	t.Parallel()
	s := trafficSpec(false)
	s.Training.Steps, s.Promotion.Approval, s.Promotion.ApprovalHours = 1, true, 24
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: func(version int, _ record.Kind) float64 { return float64(version) }}}
	env := fake.environment(s)
	one, late := ask(env, "1", time.Hour), ask(env, "2", 2*time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError(), "it ends when nobody decides")
	require.Contains(t, one.result.Message, "its version waits for approval")
	require.ErrorContains(t, late.rejected, "the run has made its last step")
}

func TestAStopDuringASegmentIsAfterIt(t *testing.T) {
	t.Parallel()
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: constantScore}}
	env := fake.environment(trafficSpec(false))
	stop := updateDuring(t, fake.fakeActivities, env, 1, workflows.UpdateStop, workflows.ControlInput{By: "ada"})
	ask(env, "1", time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	var out workflows.TrainingResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, 1, stop.result.Step)
	require.Equal(t, 1, out.Steps)
	require.Equal(t, 1, out.Stopped.After)
}
