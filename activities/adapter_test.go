package activities_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/spec"
)

// The adapters are the same whether or not the warm start is cut off, with one trainer or
// a new one for each step, and with one thread or three. The loss also reads the
// reference.
func TestAdaptersAreTheSameHoweverTheirRunWasDisturbed(t *testing.T) {
	t.Parallel()
	for _, precision := range []model.Precision{model.F32, model.BF16} { // the model is too small for blocks of Q8_0
		t.Run(string(precision), func(t *testing.T) {
			t.Parallel()
			requireSameAdapters(t, precision)
		})
	}
}

func requireSameAdapters(t *testing.T, precision model.Precision) {
	t.Helper()
	undisturbed, w := newTestEnv(t), newTestEnv(t)
	run := func(w *testEnv) spec.Spec {
		s := w.warm()
		s.Model.LoRA = &spec.LoRA{Rank: 4, BasePrecision: string(precision)}
		if precision == model.BF16 {
			s.Model.LoRA.TrainableTokens = []string{"57", "42"}
		}
		s.Training.TasksPerStep, s.Training.Passes, s.Training.Minibatches = 4, 2, 2
		s.Loss.KL = &spec.KL{Weight: 0.01}
		return s
	}
	undisturbed.start(run(undisturbed))
	one := undisturbed.trainer()
	for step := 1; step <= 3; step++ {
		_, err := do[activities.VersionResult](t, one.TrainStep, trainStep(step, undisturbed.groups(step, 4)))
		require.NoError(t, err)
	}

	w.prepare(run(w))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := w.trainer()
	first.Versions, first.SaveEvery = cutting{w.store, cancel}, 50
	_, err := do[activities.VersionResult](t, first.InitPolicy, initPolicy(), under(ctx))
	requireRetryable(t, err, "context canceled")
	other := func() *activities.Trainer {
		trainer := w.trainer()
		trainer.Engines = func(string) (model.Engine, error) { return native.New(native.Options{Threads: 3}), nil }
		return trainer
	}
	_, err = do[activities.VersionResult](t, other().InitPolicy, initPolicy())
	require.NoError(t, err)
	for step := 1; step <= 3; step++ {
		_, err := do[activities.VersionResult](t, other().TrainStep, trainStep(step, w.groups(step, 4)))
		require.NoError(t, err)
	}
	for n := range 4 {
		requireSameManifest(t, undisturbed, w, n)
	}

	// They are versions of one base, which the sampler serves: each has its canary.
	seen, bases := map[string]bool{}, map[string]bool{}
	sampler := serve.New(native.New(native.Options{Threads: 2}), w.catalog, 4)
	defer sampler.Close()
	for n := range 4 {
		v, err := w.version(n)
		require.NoError(t, err)
		c, m, err := checkpoint.Load(t.Context(), w.blobs, v.Manifest)
		require.NoError(t, err)
		require.Equal(t, model.AdapterManifestFormat, m.Format)
		require.Equal(t, 4, c.Adapter.Rank)
		require.Equal(t, precision, c.Adapter.Precision())
		seen[v.Weights], bases[m.Base.Digest] = true, true
		_, weights, err := sampler.Sample(t.Context(), v.VersionID, model.DecodeRequest{Prompt: []int32{1, 2}, MaxTokens: 2})
		require.NoError(t, err)
		require.Equal(t, v.Weights, weights)
	}
	require.Len(t, seen, 4)
	require.Len(t, bases, 1)
}

func TestACriticOfAnAdapterIsAnAdapterOfTheSameBase(t *testing.T) {
	t.Parallel()
	var ends []string
	for _, resident := range []bool{true, false} {
		w := newTestEnv(t)
		s := w.critical()
		s.Model.LoRA = &spec.LoRA{}
		w.start(s)
		trainer := w.trainer
		if resident {
			one := w.trainer()
			trainer = func() *activities.Trainer { return one }
		}
		for step := 1; step <= 2; step++ {
			w.criticStep(step, trainer, nil)
		}
		_, policy, err := checkpoint.Load(t.Context(), w.blobs, w.manifest(2))
		require.NoError(t, err)
		c, critic, err := checkpoint.Load(t.Context(), w.blobs, w.critic(2).Manifest)
		require.NoError(t, err)
		require.True(t, c.Architecture.ValueHead)
		require.Equal(t, policy.Base, critic.Base)
		ends = append(ends, policy.Weights()+critic.Weights())
	}
	require.Equal(t, ends[0], ends[1])
}
