package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

// inUse is the spec of a run that learns from conversations.
func inUse() spec.Spec {
	return spec.Spec{
		Agent: spec.Agent{Func: "agent"}, Tasks: spec.Tasks{Gate: "arithmetic:gate:10"}, Grader: spec.Grader{Type: "exact"},
		Traffic: &spec.Traffic{Record: spec.RecordAll, Train: &spec.TrafficTraining{}},
	}
}

func TestARunThatLearnsFromUseNeedsNoTasksToTrainOn(t *testing.T) {
	t.Parallel()
	s := inUse()
	require.NoError(t, s.Validate())
	full := s.WithDefaults()
	require.True(t, full.FromTraffic())
	require.Equal(t, 1000, full.Training.Steps)
	require.Equal(t, 1, full.Evaluation.Every)
	require.Equal(t, spec.ScheduleConstant, full.Training.Optimizer.Schedule)
	require.Equal(t, spec.TrafficTraining{Objective: spec.ObjectiveReward, MinReplies: 32, MaxReplies: 1024}, *full.Traffic.Train)
	require.Equal(t, spec.TrafficTraining{}, *s.Traffic.Train, "the caller's copy does not change")
	s.Traffic.Train = nil
	require.ErrorContains(t, s.Validate(), "tasks.train: missing")
}

func TestWhatARunThatLearnsFromUseCannotHaveIsNamed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*spec.Spec){
		"traffic.record: ":     func(s *spec.Spec) { s.Traffic.Record = "some" },
		"traffic.on_failure: ": func(s *spec.Spec) { s.Traffic.OnFailure = "retry" },
		"loss.preference.reference: ": func(s *spec.Spec) {
			s.Loss.Preference = &spec.LossPreference{Reference: "second"}
		},
		"traffic.train.objective: ":                    func(s *spec.Spec) { s.Traffic.Train.Objective = "joy" },
		"traffic.train.max_replies: ":                  func(s *spec.Spec) { s.Traffic.Train.MinReplies, s.Traffic.Train.MaxReplies = 10, 5 },
		"traffic.retention_days: ":                     func(s *spec.Spec) { s.Traffic.RetentionDays = -1 },
		"traffic.max_calls: ":                          func(s *spec.Spec) { s.Traffic.MaxCalls = -1 },
		"tasks.train: ":                                func(s *spec.Spec) { s.Tasks.Train = "arithmetic:train:10" },
		"training.lag: ":                               func(s *spec.Spec) { s.Training.Lag = 1 },
		"training.epochs: ":                            func(s *spec.Spec) { s.Training.Epochs = 2 },
		"critic: ":                                     func(s *spec.Spec) { s.Critic = &spec.Critic{} },
		"traffic.train.shadow.replies: ":               func(s *spec.Spec) { s.Traffic.Train.Shadow = &spec.TrafficShadow{Replies: 5} },
		"traffic.train.shadow.level: ":                 func(s *spec.Spec) { s.Traffic.Train.Shadow = &spec.TrafficShadow{Level: 0.6} },
		"traffic.train.shadow.minutes: ":               func(s *spec.Spec) { s.Traffic.Train.Shadow = &spec.TrafficShadow{Minutes: -1} },
		"traffic.train.shadow: ":                       func(s *spec.Spec) { s.Tasks.Gate, s.Traffic.Train.Shadow = "", &spec.TrafficShadow{} },
		"traffic.train.experiment.share: ":             func(s *spec.Spec) { s.Traffic.Train.Experiment = &spec.TrafficExperiment{Share: 1} },
		"traffic.train.experiment.max_conversations: ": func(s *spec.Spec) { s.Traffic.Train.Experiment = &spec.TrafficExperiment{MaxConversations: 60} },
		"without tasks.gate no version is a candidate": func(s *spec.Spec) { s.Tasks.Gate, s.Traffic.Train.Experiment = "", &spec.TrafficExperiment{} },
		"traffic.redactor.command: ":                   func(s *spec.Spec) { s.Traffic.Redactor = &spec.Redactor{} },
		"an evaluation promotes no version":            func(s *spec.Spec) { s.Evaluation.Only = "gate" },
		"loss.kl": func(s *spec.Spec) {
			s.Traffic.Train.Objective, s.Loss.KL = spec.ObjectivePreference, &spec.KL{Weight: 0.1}
		},
	} {
		s := inUse()
		change(&s)
		require.ErrorContains(t, s.Validate(), want, want)
	}
}
