package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// shadowSpec is the spec of a run whose candidates reply in the shadow.
func shadowSpec(experiment bool) spec.Spec {
	s := trafficSpec(experiment)
	s.Training.Steps, s.Traffic.Train.Shadow = 1, &spec.TrafficShadow{}
	return s.WithDefaults()
}

// repliesLike compares a candidate with as many cut off replies in the shadow.
func repliesLike(cutOff int) func(int) (activities.ShadowResult, error) {
	return func(int) (activities.ShadowResult, error) {
		pairs := make([]model.ShadowPair, 40)
		for i := range cutOff {
			pairs[i].Candidate.CutOff = true
		}
		s, err := model.CompareShadow(0, 0.05, pairs)
		return activities.ShadowResult{Shadow: s}, err
	}
}

func TestACandidateIsPromotedUnlessItsShadowIsWorse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shadow   func(int) (activities.ShadowResult, error)
		promoted int
		verdict  string
		obstacle string
	}{
		"good":    {repliesLike(1), 1, "", ""},
		"cut off": {repliesLike(20), 0, "withdrawn", "20 of 40 replies are cut off, against 0"},
		"failed": {func(int) (activities.ShadowResult, error) {
			return activities.ShadowResult{}, temporal.NewNonRetryableApplicationError("no such codec", activities.ErrTypeInvalid, nil)
		}, 0, "refused", "its shadow failed: RunShadow: no such codec"},
	} {
		fake := &fakeTraffic{fakeActivities: &fakeActivities{score: risingScore}, shadow: c.shadow, lasting: time.Minute}
		env := fake.environment(shadowSpec(false))
		ask(env, "1", time.Hour)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		var out workflows.TrainingResult
		require.NoError(t, env.GetWorkflowResult(&out), name)
		require.Equal(t, []activities.ShadowInput{{Run: "run", Policy: model.DefaultPolicy, Candidate: 1, Promoted: 0}}, fake.shadows, name)
		require.Equal(t, c.promoted, out.Promoted, name)
		if c.verdict == "" {
			require.Empty(t, fake.decided, name)
			require.Contains(t, fake.promoted[1].Decision.Reason(), "; in the shadow of version 0, 1 of 40 replies", name)
			continue
		}
		require.Len(t, fake.decided, 1, name)
		require.Equal(t, c.verdict, fake.decided[0].Verdict, name)
		require.Contains(t, fake.decided[0].Decision.Reason(), c.obstacle, name)
		require.False(t, fake.decided[0].Decision.Accept, name)
	}
}

func TestOnlyAGoodShadowIsFollowedByAnExperiment(t *testing.T) {
	t.Parallel()
	for cutOff, experiments := range map[int]int{0: 1, 20: 0} {
		fake := &fakeTraffic{
			fakeActivities: &fakeActivities{score: risingScore}, shadow: repliesLike(cutOff),
			end: func(int) (activities.ExperimentResult, error) {
				return activities.ExperimentResult{Status: record.ExperimentPromoted}, nil
			},
		}
		env := fake.environment(shadowSpec(true))
		ask(env, "1", time.Hour)
		env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, fake.experiments, experiments)
		require.Len(t, fake.promoted, 1+experiments, "version 0, and the candidate")
		if experiments > 0 {
			require.NotNil(t, fake.promoted[1].Decision.Shadow)
		}
	}
}

func TestACandidateThatTheGateRefusesHasNoShadow(t *testing.T) {
	t.Parallel()
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: constantScore}}
	env := fake.environment(shadowSpec(false))
	ask(env, "1", time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, fake.shadows)
	require.Equal(t, "refused", fake.decided[0].Verdict)
}

func TestPeopleDecideAboutAnotherCandidateDuringAShadow(t *testing.T) {
	t.Parallel()
	s := shadowSpec(false)
	s.Training.Steps, s.Promotion.Approval, s.Promotion.ApprovalHours = 2, true, 100
	fake := &fakeTraffic{fakeActivities: &fakeActivities{score: risingScore}, shadow: repliesLike(0), lasting: 10 * time.Hour}
	env := fake.environment(s)
	ask(env, "1", time.Hour)
	ask(env, "2", 20*time.Hour)
	var approve updateCallback
	env.RegisterDelayedCallback(func() {
		require.Len(t, fake.promoted, 1)
		env.UpdateWorkflow(workflows.UpdateApprove, "a", &approve, workflows.VerdictInput{By: "ada", Version: 1})
	}, 25*time.Hour)
	env.RegisterDelayedCallback(func() {
		require.Equal(t, "version 1 promoted, approved by ada", approve.result.Message)
		require.Len(t, fake.promoted, 2)
	}, 26*time.Hour)
	env.ExecuteWorkflow(workflows.TrainingWorkflow, input(t))
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, fake.shadows, 2)
	require.Len(t, fake.promoted, 2, "nobody is asked about version 2, which was compared with version 0")
	last := fake.decided[len(fake.decided)-1]
	require.Equal(t, 2, last.Decision.Candidate)
	require.Equal(t, "version 1 was promoted meanwhile, in place of version 0", last.Decision.Obstacle)
}
