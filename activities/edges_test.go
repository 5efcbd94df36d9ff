package activities_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/spec/bounds"
)

// A spec at the edges of what is accepted makes a version, or ends its run with an error
// that another try can't fix. It is never tried again for ever.
func TestWhatASpecMaySayNoStepTriesForEver(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	edge := func(b bounds.Bounds, usual float64) float64 {
		low, high := b.Edges()
		return []float64{low, usual, high}[random.IntN(3)]
	}
	for range 24 {
		w := newTestEnv(t)
		s := w.spec()
		temperature := edge(bounds.Temperature(), 1)
		s.Sampling.Temperature, s.Sampling.MaxTokens = &temperature, int(edge(bounds.MaxTokens(), 8))
		s.Training.Optimizer = spec.Optimizer{
			LearningRate: edge(bounds.LearningRate(), 1e-3), WeightDecay: edge(bounds.WeightDecay(), 0.1), ClipNorm: edge(bounds.ClipNorm(), 1),
			Beta1: edge(bounds.Beta(), 0.9), Beta2: edge(bounds.Beta(), 0.999), Epsilon: edge(bounds.Epsilon(), 1e-8),
		}
		if random.IntN(3) == 0 {
			s.Model.LoRA = &spec.LoRA{Rank: int(edge(bounds.LoRARank(), 2)), Alpha: edge(bounds.LoRAAlpha(), 16)}
		}
		s.Loss = spec.Loss{
			ClipLow: edge(bounds.Positive(1), 0.2), ClipHigh: edge(bounds.Positive(math.Inf(1)), 0.2), Entropy: edge(bounds.Between(0, math.Inf(1)), 0.1),
			DualClip: edge(bounds.Bounds{Low: 1, High: math.Inf(1), Above: true}, 3),
		}
		if random.IntN(2) == 0 {
			s.Loss.KL = &spec.KL{Weight: edge(bounds.Positive(math.Inf(1)), 0.1)}
		}
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
		require.NoError(t, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: s.Sampling.MaxTokens, Temperature: temperature}.Check(model.Tiny(8)))
	}
}

// coldSampler samples at a temperature that no engine takes, as if the run came from a
// process with other bounds.
type coldSampler struct{ model.Sampler }

func (s coldSampler) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	r.Temperature = 1e-9
	return s.Sampler.Sample(ctx, v, r)
}

// No other try helps where a sampler can't compute with the settings, and the agent is not
// to blame, whatever it makes of the refusal. So the attempt has no reward, and the run ends.
func TestSettingsThatNoSamplerTakesEndTheRun(t *testing.T) {
	t.Parallel()
	requireEnd := func(w *testEnv, a record.Address, err error) {
		var failure *temporal.ApplicationError
		require.ErrorAs(t, err, &failure)
		require.True(t, failure.NonRetryable())
		require.ErrorContains(t, err, "temperature is 1e-09, want 0 or at least 1e-06")
		require.Equal(t, record.InfraFault, w.attempt(a).Outcome)
		require.Nil(t, w.attempt(a).Reward)
	}
	served := func(w *testEnv) string {
		engine, err := engines("native")
		require.NoError(t, err)
		sampler := serve.New(engine, w.catalog, 2)
		t.Cleanup(sampler.Close)
		return w.serve(gateway.New(gateway.Config{Journal: w.store, Sampler: coldSampler{sampler}}))
	}
	w := newTestEnv(t)
	w.start(w.spec())
	for sample, mind := range []error{nil, errors.New("no answer")} {
		runner := w.runner(served(w), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
			_, err := ask(ctx, env, task.Input)
			require.Error(t, err)
			return "42", mind
		})
		_, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, sample))
		requireEnd(w, at(rollout(0, sample), 1), err)
	}
	w = newTestEnv(t)
	w.start(w.externalSpec())
	runner := w.runner(served(w), nil)
	runner.Workers = workersOf{polled: true}
	b, end := w.beginAttempt(runner, rollout(0, 0))
	require.Error(t, askAs(t.Context(), b.Brief))
	end.Reply = `{"result": "42"}`
	_, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
	requireEnd(w, at(rollout(0, 0), 1), err)
}
