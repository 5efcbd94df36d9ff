package activities_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

const (
	warmUpdates    = 70
	demonstrations = `{"messages":[{"role":"user","content":"1+1"},{"role":"assistant","content":"2"}]}
{"messages":[{"role":"user","content":"1+2"},{"role":"assistant","content":"3"}]}
{"messages":[{"role":"user","content":"2+3"},{"role":"assistant","content":"5"}]}
`
)

// warm returns the spec of a run that begins with demonstrations.
func (w *testEnv) warm() spec.Spec {
	w.write("demonstrations.jsonl", demonstrations)
	s := w.spec()
	s.Model.WarmStart = &spec.WarmStart{Demonstrations: "demonstrations.jsonl", Updates: warmUpdates, Batch: 2, LearningRate: 3e-3}
	return s
}

// cutting is a store that ends a context as soon as a state is saved.
type cutting struct {
	*store.Store
	breakingStreams context.CancelFunc
}

func (c cutting) PutProgress(ctx context.Context, p model.Progress) error {
	defer c.breakingStreams()
	return c.Store.PutProgress(ctx, p)
}

// counting is an engine that counts updates.
type counting struct {
	model.Engine
	updates *atomic.Int64
}

func (c counting) NewTrainer(k model.Checkpoint) (model.Trainer, error) {
	t, err := c.Engine.NewTrainer(k)
	return countingTrainer{t, c.updates}, err
}

type countingTrainer struct {
	model.Trainer
	updates *atomic.Int64
}

func (c countingTrainer) Update(ctx context.Context, rows []model.Row, o model.Objective, a model.AdamW) (float64, error) {
	c.updates.Add(1)
	return c.Trainer.Update(ctx, rows, o, a)
}

func count(trainer *activities.Trainer) *atomic.Int64 {
	updates := new(atomic.Int64)
	trainer.Engines = func(name string) (model.Engine, error) {
		e, err := engines(name)
		return counting{e, updates}, err
	}
	return updates
}

func TestAWarmStartThatWasCutOffGoesOnFromItsLastSavedUpdate(t *testing.T) {
	t.Parallel()
	undisturbed := newTestEnv(t)
	want := undisturbed.start(undisturbed.warm())
	require.InDelta(t, warmUpdates, want.Metrics["warm_start/updates"], 0)

	w := newTestEnv(t)
	w.prepare(w.warm())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := w.trainer()
	first.Versions, first.SaveEvery = cutting{w.store, cancel}, 50
	made := count(first)
	_, err := do[activities.VersionResult](t, first.InitPolicy, initPolicy(), under(ctx))
	requireRetryable(t, err, "context canceled")
	require.EqualValues(t, 51, made.Load(), "the update after the saved one is broken off")
	w.requireNoVersion(0)

	second := w.trainer()
	made = count(second)
	got, err := do[activities.VersionResult](t, second.InitPolicy, initPolicy())
	require.NoError(t, err)
	require.EqualValues(t, warmUpdates-50, made.Load())
	require.Equal(t, want, got)
	requireSameManifest(t, undisturbed, w, 0)
}

func requireSameManifest(t *testing.T, one, other *testEnv, number int) {
	t.Helper()
	a, err := one.version(number)
	require.NoError(t, err)
	b, err := other.version(number)
	require.NoError(t, err)
	require.Equal(t, a.Manifest, b.Manifest)
}

func TestAWarmStartGoesOnFromNothingElse(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w *testEnv, p model.Progress, s *activities.Trainer){
		"a corrupted state": func(w *testEnv, p model.Progress, _ *activities.Trainer) { w.overwrite(p.Manifest) },
		"a missing state": func(w *testEnv, p model.Progress, _ *activities.Trainer) {
			require.NoError(w.t, os.Remove(w.path(p.Manifest)))
		},
		"other demonstrations": func(w *testEnv, _ model.Progress, _ *activities.Trainer) {
			w.write("demonstrations.jsonl", demonstrations+"\n") // another file with the same dialogs
		},
		"another machine's": func(_ *testEnv, _ model.Progress, t *activities.Trainer) {
			within := t.Engines
			t.Engines = func(name string) (model.Engine, error) {
				e, err := within(name)
				return otherMachine{e}, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.prepare(w.warm())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := w.trainer()
			first.Versions, first.SaveEvery = cutting{w.store, cancel}, 50
			_, err := do[activities.VersionResult](t, first.InitPolicy, initPolicy(), under(ctx))
			requireRetryable(t, err)
			p, err := w.store.Progress(t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy})
			require.NoError(t, err)
			require.Equal(t, 50, p.Updates)

			second := w.trainer()
			made := count(second)
			spoil(w, p, second)
			got, err := do[activities.VersionResult](t, second.InitPolicy, initPolicy())
			require.NoError(t, err)
			require.EqualValues(t, warmUpdates, made.Load(), "it begins anew")
			undisturbed := newTestEnv(t)
			require.Equal(t, undisturbed.start(undisturbed.warm()), got)
		})
	}
}

// otherMachine is an engine that computes like one on another machine.
type otherMachine struct{ model.Engine }

func (otherMachine) Fingerprint() string { return "another machine" }

func TestVersionZeroStandsOnceItIsMade(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	want := w.start(w.warm())
	trainer := w.trainer()
	made := count(trainer)
	got, err := do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Zero(t, made.Load())
}

func TestTheTinyModelHasTheContextThatTheSpecSays(t *testing.T) {
	t.Parallel()
	for context, want := range map[int]int{0: 64, 3000: 3000} {
		w := newTestEnv(t)
		s := w.spec()
		s.Model.Base, s.Model.Context = spec.BaseTiny, context
		w.start(s)
		c, _, err := checkpoint.Load(t.Context(), w.blobs, w.parent().Manifest)
		require.NoError(t, err)
		require.Equal(t, want, c.Architecture.MaxPositions)
	}
}

func TestReinforcementBeginsWithFreshMoments(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.warm())
	c, m, err := checkpoint.Load(t.Context(), w.blobs, w.parent().Manifest)
	require.NoError(t, err)
	require.Zero(t, c.Updates)
	require.Nil(t, c.Mean)
	require.Nil(t, c.Variance)
	require.NotContains(t, m.Files, model.OptimizerFile)
}

// diverging is an engine whose gradients are never finite.
type diverging struct{ model.Engine }

func (d diverging) NewTrainer(k model.Checkpoint) (model.Trainer, error) {
	t, err := d.Engine.NewTrainer(k)
	return divergingTrainer{t}, err
}

type divergingTrainer struct{ model.Trainer }

func (divergingTrainer) Update(context.Context, []model.Row, model.Objective, model.AdamW) (float64, error) {
	return 0, model.ErrDiverged
}

func TestWhatNoRetryMendsEndsAWarmStart(t *testing.T) {
	t.Parallel()
	t.Run("a diverged gradient", func(t *testing.T) {
		t.Parallel()
		w := newTestEnv(t)
		w.prepare(w.warm())
		trainer := w.trainer()
		trainer.Engines = func(name string) (model.Engine, error) {
			e, err := engines(name)
			return diverging{e}, err
		}
		_, err := do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
		requireNoRetry(t, err, "model.warm_start.learning_rate")
		w.requireNoVersion(0)
	})
	t.Run("a bad demonstration", func(t *testing.T) {
		t.Parallel()
		w := newTestEnv(t)
		w.prepare(w.warm())
		w.write("demonstrations.jsonl", "no JSON\n")
		_, err := do[activities.VersionResult](t, w.trainer().InitPolicy, initPolicy())
		requireFinal(t, err, "warm start of run demo", "demonstrations.jsonl")
	})
}
