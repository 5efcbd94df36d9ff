package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSetChangesWhatLaterStepsRead(t *testing.T) {
	t.Parallel()
	s := valid()
	changed, err := s.Set(map[string]float64{"training.optimizer.learning_rate": 1e-4, "evaluation.every": 2, "promotion.margin": 0.1})
	require.NoError(t, err)
	want := s.WithDefaults()
	want.Training.Optimizer.LearningRate, want.Evaluation.Every, want.Promotion.Margin = 1e-4, 2, 0.1
	require.Equal(t, want, changed)
	require.Equal(t, valid(), s, "the original stays")
}

func TestSetRefusesWhatCannotChangeOrCannotBe(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values map[string]float64
		want   string
	}{
		"unknown":    {map[string]float64{"training.lr": 1}, "training.lr: can't be set while a run is under way; one of evaluation.every, "},
		"too late":   {map[string]float64{"training.lag": 1}, "training.lag: can't be set"},
		"impossible": {map[string]float64{"training.optimizer.learning_rate": -1}, "training.optimizer.learning_rate: -1 is not possible"},
		"fraction":   {map[string]float64{"evaluation.every": 2.5}, "evaluation.every: "},
	} {
		_, err := valid().Set(c.values)
		require.ErrorContains(t, err, c.want, name)
	}
}
