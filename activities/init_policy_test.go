package activities_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store/blob"
)

const warmUpdates = 130 // one save on the way, after 100

// warm is a run that begins with demonstrations.
func (w *world) warm() spec.Spec {
	w.write("demonstrations.jsonl", `{"messages":[{"role":"user","content":"1+1"},{"role":"assistant","content":"2"}]}
{"messages":[{"role":"user","content":"1+2"},{"role":"assistant","content":"3"}]}
{"messages":[{"role":"user","content":"2+3"},{"role":"assistant","content":"5"}]}
`)
	s := w.spec()
	s.Model.WarmStart = &spec.WarmStart{Demonstrations: "demonstrations.jsonl", Updates: warmUpdates, Batch: 2, LearningRate: 3e-3}
	return s
}

// cutting ends a context once it holds as many blobs as a saved update has:
// config, weights, moments and, last, the manifest.
type cutting struct {
	*blob.Store
	cut      context.CancelFunc
	left     int
	manifest string
}

func (c *cutting) Put(ctx context.Context, data []byte) (string, error) {
	digest, err := c.Store.Put(ctx, data)
	if c.left--; c.left == 0 {
		c.manifest = digest
		c.cut()
	}
	return digest, err
}

// progress is what an attempt said in its heartbeats, for the next one.
type progress struct {
	t    testing.TB
	mu   sync.Mutex
	last json.RawMessage
}

func (p *progress) listen(env *testsuite.TestActivityEnvironment) {
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var said json.RawMessage
		if err := details.Get(&said); err != nil {
			p.t.Error(err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last = said
	})
}

func (p *progress) handOn(env *testsuite.TestActivityEnvironment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	env.SetHeartbeatDetails(p.last)
}

func (p *progress) said() (details struct{ Manifest string }) {
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NoError(p.t, json.Unmarshal(p.last, &details))
	return details
}

// counting counts updates.
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

func TestAWarmStartThatWasCutOffEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	undisturbed := newWorld(t)
	want := undisturbed.start(undisturbed.warm())
	require.InDelta(t, warmUpdates, want.Metrics["warm_start/updates"], 0)

	w := newWorld(t)
	w.prepare(w.warm())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	blobs := &cutting{Store: w.blobs, cut: cancel, left: 4}
	first := w.trainer()
	first.Blobs = blobs
	made := count(first)
	progress := &progress{t: t}
	_, err := do[activities.VersionResult](t, first.InitPolicy, initPolicy(), under(ctx), progress.listen)
	requireRetryable(t, err, "context canceled")
	require.Equal(t, blobs.manifest, progress.said().Manifest)
	require.EqualValues(t, 101, made.Load(), "the update after the saved one is broken off")
	w.requireNoVersion(0)

	second := w.trainer()
	made = count(second)
	got, err := do[activities.VersionResult](t, second.InitPolicy, initPolicy(), progress.handOn)
	require.NoError(t, err)
	require.EqualValues(t, warmUpdates-100, made.Load())
	require.Equal(t, want, got)
	a, err := undisturbed.version(0)
	require.NoError(t, err)
	b, err := w.version(0)
	require.NoError(t, err)
	require.Equal(t, a.Manifest, b.Manifest)
}

func TestAWarmStartBegunAgainFromNothingEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prepare(w.warm())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := w.trainer()
	first.Blobs = &cutting{Store: w.blobs, cut: cancel, left: 4}
	_, err := do[activities.VersionResult](t, first.InitPolicy, initPolicy(), under(ctx))
	requireRetryable(t, err)
	got, err := do[activities.VersionResult](t, first.InitPolicy, initPolicy())
	require.NoError(t, err)
	undisturbed := newWorld(t)
	require.Equal(t, undisturbed.start(undisturbed.warm()), got)
}

func TestVersionZeroStandsOnceItIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := w.start(w.warm())
	trainer := w.trainer()
	made := count(trainer)
	got, err := do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Zero(t, made.Load())
}

func TestReinforcementBeginsWithFreshMoments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
		w := newWorld(t)
		w.prepare(w.warm())
		trainer := w.trainer()
		trainer.Engines = func(name string) (model.Engine, error) {
			e, err := engines(name)
			return diverging{e}, err
		}
		_, err := do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
		requireFinal(t, err, "model.warm_start.learning_rate")
		w.requireNoVersion(0)
	})
	t.Run("a bad demonstration", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.prepare(w.warm())
		w.write("demonstrations.jsonl", "no JSON\n")
		_, err := do[activities.VersionResult](t, w.trainer().InitPolicy, initPolicy())
		requireFinal(t, err, "warm start of run demo", "demonstrations.jsonl")
	})
}
