package update_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

func TestTheAdviceNamesTheRateOfThePolicyThatDiverged(t *testing.T) {
	t.Parallel()
	const rate = "training.optimizer.learning_rate"
	s := spec.Spec{
		Training: spec.Training{Optimizer: spec.Optimizer{LearningRate: 2e-3}},
		Policies: map[string]spec.Policy{"writer": {Optimizer: &spec.Optimizer{LearningRate: 5e-3}}, "checker": {Optimizer: &spec.Optimizer{ClipNorm: 2}}},
	}
	advice := func(policy string) string {
		return update.Lower(update.Run{Name: "demo", Spec: s.ForPolicy(policy)}, model.VersionID{Run: "demo", Policy: policy, Number: 3}, rate)
	}
	require.Equal(t, "lower policies.writer.optimizer.learning_rate: `fulgurite retry demo --set policies.writer.optimizer.learning_rate=0.0005`", advice("writer"))
	require.Equal(t, "lower training.optimizer.learning_rate: `fulgurite retry demo --set training.optimizer.learning_rate=0.0002`", advice("checker"))
	require.Equal(t, advice("checker"), advice("main"))
}
