package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

// Where a spec departs from what is known to work, plan says what to give instead.
func TestDeparturesFromWhatIsKnownToWork(t *testing.T) {
	t.Parallel()
	of := func(change func(*spec.Spec)) []string {
		s := spec.Spec{Training: spec.Training{SamplesPerTask: 8}, Model: spec.Model{LoRA: &spec.LoRA{Rank: 16}}}
		s.Training.Optimizer.LearningRate = 3e-4
		s = s.WithDefaults()
		change(&s)
		return departures(s)
	}
	require.Empty(t, of(func(*spec.Spec) {}))

	slow := of(func(s *spec.Spec) { s.Training.Optimizer.LearningRate = 1e-5 })
	require.Len(t, slow, 1)
	require.Contains(t, slow[0], "training.optimizer.learning_rate is 1e-05, a rate of complete models")
	require.Empty(t, of(func(s *spec.Spec) { s.Training.Optimizer.LearningRate, s.Model.LoRA = 1e-5, nil }), "a complete model learns at that rate")

	pairs := of(func(s *spec.Spec) { s.Training.SamplesPerTask = 2 })
	require.Len(t, pairs, 1)
	require.Contains(t, pairs[0], "training.samples_per_task is 2")
	require.Empty(t, of(func(s *spec.Spec) { s.Training.SamplesPerTask, s.Credit.Std = 2, "none" }))
}
