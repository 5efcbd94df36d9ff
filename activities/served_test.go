package activities_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// served returns the spec of a run of adapters from which vLLM samples.
func (w *testEnv) served(change func(*spec.Server)) spec.Spec {
	s := w.spec()
	s.Model.LoRA = &spec.LoRA{Rank: 4}
	s.Sampling.Server = &spec.Server{Type: spec.ServerVLLM, URLs: []string{"http://127.0.0.1:1"}, Model: "m", Directory: w.t.TempDir()}
	change(s.Sampling.Server)
	return s.WithDefaults()
}

func TestTheCanaryOfAServedAdapterShowsItAtWork(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.served(func(*spec.Server) {}))
	_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	first, err := w.catalog.Canary(t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy})
	require.NoError(t, err)
	for _, r := range first.Rows {
		require.Equal(t, r.Logprobs, r.Base, "an adapter that was not trained changes nothing")
	}
	id := model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: 1}
	canary, err := w.catalog.Canary(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, canary.Rows, len(first.Rows)+2, "both rows of the batch")
	for i, r := range canary.Rows {
		require.NotEqual(t, r.Logprobs, r.Base)
		if i < len(first.Rows) {
			require.Equal(t, first.Rows[i].Base, r.Base, "one base")
		}
	}
	recorded := canary.Rows[len(first.Rows)]
	require.Equal(t, []int32{37, 38, 39}, recorded.Prompt)
	require.Equal(t, []int32{40, 41}, recorded.Tokens)

	c, _, err := w.catalog.Load(t.Context(), id)
	require.NoError(t, err)
	engine := native.New(native.Options{})
	decoder, err := engine.NewDecoder(c)
	require.NoError(t, err)
	defer decoder.Close()
	require.NoError(t, canary.Verify(t.Context(), engine, decoder), "the built-in sampler serves it as well")
}

func TestAStepIsNotTrainedOnLogprobsOfAnotherModel(t *testing.T) {
	t.Parallel()
	for says, c := range map[string]struct {
		change  func(*spec.Server)
		logprob float32
	}{
		"":                         {func(s *spec.Server) { s.WorstMismatch = 1 }, sampledAt},
		"train/mismatch is 4.":     {func(*spec.Server) {}, sampledAt + 4.5},
		"train/mismatch_max is 4.": {func(s *spec.Server) { s.Mismatch, s.WorstMismatch = 10, 3 }, sampledAt + 4.5},
	} {
		w := newTestEnv(t)
		w.start(w.served(c.change))
		_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.batch(1, c.logprob)))
		if says == "" {
			require.NoError(t, err)
			v, err := w.version(1)
			require.NoError(t, err)
			require.Positive(t, v.Metrics["train/mismatch_max"])
			continue
		}
		requireNoRetry(t, err, says)
		w.requireNoVersion(1)
	}
}

// sampledBy records the attempts of a batch. Each has a call that one server sampled.
func (w *testEnv) sampledBy(servers ...string) {
	w.t.Helper()
	for sample, server := range servers {
		id := record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Sample: sample}
		a, err := w.store.BeginAttempt(w.t.Context(), id, "a", record.Terms{Policy: model.DefaultPolicy, Temperature: 1}, "key")
		require.NoError(w.t, err)
		c := callOf(a, 0, "a: said")
		c.Server = server
		require.NoError(w.t, w.store.AppendCall(w.t.Context(), &c))
	}
}

func TestMismatchIsToldByServer(t *testing.T) {
	t.Parallel()
	const good, bad = "gpu-1:8000", "gpu-2:8000/vllm"
	two := func(limit float64, passes int) func(*testEnv) spec.Spec {
		return func(w *testEnv) spec.Spec {
			s := w.served(func(s *spec.Server) {
				s.URLs, s.Mismatch = append(s.URLs, "http://127.0.0.1:2"), limit
			})
			s.Training.Passes = passes
			return s
		}
	}
	train := func(specOf func(*testEnv) spec.Spec) (*testEnv, error) {
		w := newTestEnv(t)
		w.start(specOf(w))
		w.sampledBy(good, bad)
		_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.batch(1, sampledAt, sampledAt+4.5)))
		return w, err
	}

	w, err := train(two(0, 1))
	requireNoRetry(t, err, "are not the log-probabilities of version demo@0, which was to sample")
	require.Regexp(t, `by server: gpu-2:8000/vllm 4\.\d+ \(worst token 4\.\d+, of 3\), gpu-1:8000 0\.\d+ \(worst token 0\.\d+, of 3\); fix the servers`, err.Error())
	require.ErrorContains(t, err, "this one would meet the same record again")
	w.requireNoVersion(1)

	var metrics [2]map[string]float64
	for i := range metrics {
		w, err := train(two(10, 1+i))
		require.NoError(t, err)
		v, err := w.version(1)
		require.NoError(t, err)
		metrics[i] = v.Metrics
		require.InDelta(t, 4.5, v.Metrics["train/mismatch/"+bad], 0.5)
		require.InDelta(t, 4.5, v.Metrics["train/mismatch/"+bad+"_max"], 0.5)
		require.Less(t, v.Metrics["train/mismatch/"+good], 0.5)
	}
	require.InDelta(t, metrics[0]["train/mismatch"], (metrics[0]["train/mismatch/"+good]+metrics[0]["train/mismatch/"+bad])/2, 1e-6)
	for name, v := range metrics[0] {
		if strings.HasPrefix(name, "train/mismatch/") {
			require.Equal(t, v, metrics[1][name], "%s is that of the first update, whatever follows", name)
			require.NotContains(t, metrics[1], "train/last_"+strings.TrimPrefix(name, "train/"))
		}
	}
}

func TestAStepThatEngineTorchSampledIsTrainedWithAWarning(t *testing.T) {
	t.Parallel()
	for logprob, warns := range map[float32]bool{sampledAt: false, sampledAt + 4.5: true} {
		w := newTestEnv(t)
		s := w.spec()
		s.Model.Engine = spec.EngineTorch
		w.start(s.WithDefaults())
		var suite testsuite.WorkflowTestSuite
		var logged strings.Builder
		suite.SetLogger(log.NewStructuredLogger(slog.New(slog.NewTextHandler(&logged, nil))))
		env, trainer := suite.NewTestActivityEnvironment(), w.trainer()
		env.RegisterActivity(trainer.TrainStep)
		_, err := env.ExecuteActivity(trainer.TrainStep, trainStep(1, w.batch(1, logprob)))
		require.NoError(t, err)
		v, err := w.version(1)
		require.NoError(t, err)
		require.Positive(t, v.Metrics["train/mismatch_max"])
		require.Equal(t, warns, strings.Contains(logged.String(), "what sampled has other log-probabilities than the trainer"), logged.String())
		if warns {
			require.Contains(t, logged.String(), "version=demo@0")
		}
	}
}
