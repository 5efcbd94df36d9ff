package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
	"github.com/fulgurite/fulgurite/spec"
)

// sampler returns the built-in sampler of all versions that were written.
func (w *testEnv) sampler() *serve.Sampler {
	engine, err := engines("native")
	require.NoError(w.t, err)
	s := serve.New(engine, w.catalog, 2)
	w.t.Cleanup(s.Close)
	return s
}

func id(number int) model.VersionID {
	return model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: number}
}

func TestEveryVersionHasCanariesThatItsSamplerReproduces(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]func(*testEnv) spec.Spec{"a base": (*testEnv).spec, "a warm start": (*testEnv).warm, "several updates": (*testEnv).several} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.start(s(w))
			_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.groups(1, 4)))
			require.NoError(t, err)
			sampler := w.sampler()
			seen := map[float32]bool{}
			for number := range 2 {
				c, err := w.catalog.Canary(t.Context(), id(number))
				require.NoError(t, err)
				require.Len(t, c.Rows, 4)
				require.True(t, c.Exact)
				seen[c.Rows[0].Logprobs[0]] = true
				require.NoError(t, sampler.Publish(t.Context(), id(number)))
			}
			require.Len(t, seen, 2, "they tell versions apart")
		})
	}
}

// All blobs and digests are valid, but they were made from the wrong weights.
func TestAVersionWithTheWeightsOfAnotherIsNotServed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	old, _, err := checkpoint.Load(t.Context(), w.blobs, w.manifest(0))
	require.NoError(t, err)
	_, m, err := checkpoint.Load(t.Context(), w.blobs, w.manifest(1))
	require.NoError(t, err)
	canary, err := w.catalog.Canary(t.Context(), id(1))
	require.NoError(t, err)
	m.Number, m.Parent = 2, 1
	manifest, weights, err := checkpoint.SaveVersion(t.Context(), w.blobs, old, m, *canary)
	require.NoError(t, err)
	_, _, err = w.store.PutVersion(t.Context(), model.Version{VersionID: id(2), Parent: 1, Manifest: manifest, Weights: weights})
	require.NoError(t, err)
	err = w.sampler().Publish(t.Context(), id(2))
	require.ErrorIs(t, err, model.ErrWrongWeights)
	require.ErrorContains(t, err, "demo@2")
	require.ErrorContains(t, err, "canary 0, token 0")
}

// If a trainer's files differ from its memory, the process that loads the files notices.
func TestWeightsThatAreNotThoseInTheTrainersMemoryAreNotServed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	trainer := w.trainer()
	trainer.Engines = func(name string) (model.Engine, error) {
		e, err := engines(name)
		return lossy{e}, err
	}
	_, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	require.ErrorIs(t, w.sampler().Publish(t.Context(), id(1)), model.ErrWrongWeights)
}

// lossy is an engine whose checkpoints have one wrong number.
type lossy struct{ model.Engine }

func (f lossy) NewTrainer(c model.Checkpoint) (model.Trainer, error) {
	t, err := f.Engine.NewTrainer(c)
	return lossyTrainer{t}, err
}

type lossyTrainer struct{ model.Trainer }

func (f lossyTrainer) Checkpoint() model.Checkpoint {
	c := f.Trainer.Checkpoint()
	c.Weights[2].Data[0] += 0.01
	return c
}
