package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/native"
	"github.com/fulgurite/fulgurite/spec"
)

// served is a run of adapters that vLLM samples from.
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
		requireFinal(t, err, says)
		w.requireNoVersion(1)
	}
}
