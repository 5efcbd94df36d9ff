package activities_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// A spec at the edges of what is accepted makes a version, or ends its run with an error
// that another try can't fix. It is never tried again for ever.
func TestWhatASpecMaySayNoStepTriesForEver(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	one := func(values ...float64) float64 { return values[random.IntN(len(values))] }
	for range 24 {
		w := newTestEnv(t)
		s := w.spec()
		temperature := one(1e-6, 1, 100)
		s.Sampling.Temperature = &temperature
		s.Training.Optimizer = spec.Optimizer{
			LearningRate: one(math.SmallestNonzeroFloat64, 1e-3, 1), WeightDecay: one(0, math.SmallestNonzeroFloat64, 1),
			ClipNorm: one(math.SmallestNonzeroFloat64, 1, 1e300), Beta1: one(math.SmallestNonzeroFloat64, 0.9, math.Nextafter(1, 0)),
			Beta2: one(math.SmallestNonzeroFloat64, 0.999, math.Nextafter(1, 0)), Epsilon: one(1e-30, 1e-8, math.Nextafter(1, 0)),
		}
		s.Loss = spec.Loss{ClipLow: one(math.SmallestNonzeroFloat64, 0.2, 1), ClipHigh: one(math.SmallestNonzeroFloat64, 0.2, math.MaxFloat64), Entropy: one(0, math.SmallestNonzeroFloat64, 1e300)}
		s.Training.Passes, s.Training.Minibatches = 1+random.IntN(2), 1+random.IntN(2)
		require.NoError(t, s.Validate(), "%+v", s)
		w.prepare(s)
		_, err := do[activities.VersionResult](t, w.trainer().InitPolicy, initPolicy())
		require.NoError(t, err)
		got, err := do[activities.AssignCreditResult](t, w.coordinator.AssignCredit, w.record(1, two(1, 0), two(0, 1)))
		require.NoError(t, err)
		_, err = do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, got.Batch))
		var failure *temporal.ApplicationError
		if err != nil {
			require.ErrorAs(t, err, &failure)
			require.True(t, failure.NonRetryable(), "%v\n%+v", err, s.Training.Optimizer)
		}
		require.NoError(t, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1, Temperature: temperature}.Check(model.Tiny(8)))
	}
}
