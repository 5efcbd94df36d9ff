package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

func TestPreferencesHaveABetaWithinItsBounds(t *testing.T) {
	t.Parallel()
	s := valid()
	for _, beta := range []float64{-1, 10.5} {
		s.Loss.Preference = &spec.LossPreference{Beta: beta}
		require.ErrorContains(t, s.Validate(), "loss.preference.beta: ", beta)
	}
	for given, want := range map[float64]float64{0: 0.1, 10: 10, 0.5: 0.5} {
		s.Loss.Preference = &spec.LossPreference{Beta: given}
		require.NoError(t, s.Validate())
		loss, err := s.WithDefaults().Loss.PreferenceLoss()
		require.NoError(t, err)
		require.Equal(t, credit.Preference{Beta: want}, loss)
	}
	loss, err := spec.Loss{}.PreferenceLoss()
	require.NoError(t, err)
	require.Equal(t, credit.Preference{Beta: 0.1}, loss, "without the key")
}

func TestPartsThatFeedbackHasNoPlaceForAreRefused(t *testing.T) {
	t.Parallel()
	_, err := spec.Loss{KL: &spec.KL{Estimator: credit.KL3, Weight: 1}}.PreferenceLoss()
	require.ErrorContains(t, err, "loss.kl: preferences have a reference of their own")
	_, err = spec.Loss{Entropy: 0.1}.PreferenceLoss()
	require.ErrorContains(t, err, "loss.entropy: ")
	_, err = spec.Loss{KL: &spec.KL{Estimator: credit.Unbiased, Weight: 1}}.SupervisedLoss()
	require.ErrorContains(t, err, "loss.kl.estimator: ")
	loss, err := spec.Loss{Type: credit.LossGSPO, KL: &spec.KL{Estimator: credit.KL3, Weight: 1}, Entropy: 0.1}.SupervisedLoss()
	require.NoError(t, err)
	require.Equal(t, credit.Supervised{KL: credit.KL{Estimator: credit.KL3, Weight: 1}, Entropy: 0.1}, loss)
}
