package activities_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// batch stores a batch of two rows for a step. logprobs has one number for each row: the
// recorded log-probability of each of its sampled tokens. The last number is for all
// further rows.
func (w *testEnv) batch(step int, logprobs ...float32) string {
	w.t.Helper()
	b := model.Batch{
		Format: model.BatchFormat, Policy: model.DefaultPolicy, Step: step, VocabSize: dialog.Compact().VocabSize(),
		Trajectories: []model.BatchTrajectory{{Attempt: "demo/train-1/0/0/1", Reward: 1, Advantage: 1}, {Attempt: "demo/train-1/0/1/1", Advantage: -1}},
	}
	for i, t := range b.Trajectories {
		r := model.BatchRow{Row: model.Row{Temperature: 1}, Trajectory: i}
		for k := range 6 {
			sampled := k >= 3
			r.Tokens = append(r.Tokens, int32(30+7*step+11*i+k))
			r.Sampled = append(r.Sampled, sampled)
			r.Logprobs, r.Advantages, r.Calls = append(r.Logprobs, 0), append(r.Advantages, 0), append(r.Calls, -1)
			if sampled {
				r.Logprobs[k], r.Advantages[k], r.Calls[k] = logprobs[min(i, len(logprobs)-1)], float32(t.Advantage), 0
			}
		}
		b.Rows = append(b.Rows, r)
	}
	b.Count()
	data, err := hf.EncodeBatch(b)
	require.NoError(w.t, err)
	digest, err := w.blobs.Put(w.t.Context(), data)
	require.NoError(w.t, err)
	return digest
}

// sampledAt is about the log-probability of each token under an untrained model.
const sampledAt = -5.66

func trainStep(step int, batch string) activities.TrainStepInput {
	return activities.TrainStepInput{Run: "demo", Policy: model.DefaultPolicy, Step: step, Batch: batch}
}

func (w *testEnv) version(number int) (model.Version, error) {
	return w.store.Version(w.t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: number})
}

func (w *testEnv) requireNoVersion(number int) {
	w.t.Helper()
	_, err := w.version(number)
	require.ErrorIs(w.t, err, record.ErrNotFound)
}

func TestAStepExecutedTwiceMakesOneVersion(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	start := w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	trainer := w.trainer()
	first, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	require.NotEqual(t, start.Weights, first.Weights)
	for _, again := range []*activities.Trainer{trainer, w.trainer()} {
		second, err := do[activities.VersionResult](t, again.TrainStep, in)
		require.NoError(t, err)
		require.Equal(t, first, second)
	}
	versions, err := w.store.Versions(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, versions, 2)
	require.Equal(t, in.Batch, versions[1].Batch)
	require.Equal(t, 0, versions[1].Parent)
}

// meeting makes all processes that record a version wait for each other before they do
// so.
type meeting struct {
	*store.Store
	all *sync.WaitGroup
}

func (m meeting) PutVersion(ctx context.Context, v model.Version) (model.Version, bool, error) {
	m.all.Done()
	m.all.Wait()
	return m.Store.PutVersion(ctx, v)
}

func TestTwoTrainersAtOnceMakeOneVersion(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	var all, done sync.WaitGroup
	all.Add(2)
	results, errs := make([]activities.VersionResult, 2), make([]error, 2)
	for i := range results {
		trainer := w.trainer()
		trainer.Versions = meeting{w.store, &all}
		done.Go(func() { results[i], errs[i] = do[activities.VersionResult](t, trainer.TrainStep, in) })
	}
	done.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Equal(t, results[0], results[1])
}

func TestARestartedTrainerMakesTheSameBits(t *testing.T) {
	t.Parallel()
	steady, restarted := newTestEnv(t), newTestEnv(t)
	resident := steady.trainer()
	require.Equal(t, steady.start(steady.spec()).Weights, restarted.start(restarted.spec()).Weights)
	seen := map[string]bool{}
	for step := 1; step <= 3; step++ {
		one, err := do[activities.VersionResult](t, resident.TrainStep, trainStep(step, steady.batch(step, sampledAt)))
		require.NoError(t, err)
		other, err := do[activities.VersionResult](t, restarted.trainer().TrainStep, trainStep(step, restarted.batch(step, sampledAt)))
		require.NoError(t, err)
		require.Equal(t, one, other)
		a, err := steady.version(step)
		require.NoError(t, err)
		b, err := restarted.version(step)
		require.NoError(t, err)
		require.Equal(t, a.Manifest, b.Manifest, "the optimizer's moments too")
		seen[one.Weights] = true
	}
	require.Len(t, seen, 3, "each step learned something")
}

// refusesFirst does not record the first version that it gets.
type refusesFirst struct {
	*store.Store
	refused *bool
}

func (u refusesFirst) PutVersion(ctx context.Context, v model.Version) (model.Version, bool, error) {
	if !*u.refused {
		*u.refused = true
		return model.Version{}, false, errors.New("the store is away")
	}
	return u.Store.PutVersion(ctx, v)
}

func TestAnUpdateThatWasNotRecordedIsNotBuiltUpon(t *testing.T) {
	t.Parallel()
	w, other := newTestEnv(t), newTestEnv(t)
	w.start(w.spec())
	other.start(other.spec())
	trainer := w.trainer()
	trainer.Versions = refusesFirst{w.store, new(bool)}
	in := trainStep(1, w.batch(1, sampledAt))
	_, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	requireRetryable(t, err, "record version demo@1", "the store is away")
	w.requireNoVersion(1)
	got, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	want, err := do[activities.VersionResult](t, other.trainer().TrainStep, trainStep(1, other.batch(1, sampledAt)))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestUnreadableInputMakesNoVersion(t *testing.T) {
	t.Parallel()
	const absent = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for name, c := range map[string]struct {
		spoil func(w *testEnv, batch string) (input string)
		words []string
		final bool
	}{
		"missing batch": {func(*testEnv, string) string { return absent }, []string{"read batch " + absent, "not found"}, false},
		"corrupted batch": {func(w *testEnv, batch string) string {
			w.overwrite(batch)
			return batch
		}, []string{"read batch", "corrupt"}, false},
		"no batch at all": {func(w *testEnv, _ string) string {
			digest, err := w.blobs.Put(w.t.Context(), []byte("something else"))
			require.NoError(w.t, err)
			return digest
		}, []string{"batch sha256:"}, true},
		"missing checkpoint": {func(w *testEnv, batch string) string {
			require.NoError(w.t, os.Remove(w.path(w.parent().Weights)))
			return batch
		}, []string{"load the parent of version demo@1", model.WeightsFile, "not found"}, false},
		"corrupted checkpoint": {func(w *testEnv, batch string) string {
			w.overwrite(w.parent().Weights)
			return batch
		}, []string{"load the parent of version demo@1", model.WeightsFile, "corrupt"}, false},
		"corrupted manifest": {func(w *testEnv, batch string) string {
			w.overwrite(w.parent().Manifest)
			return batch
		}, []string{"load the parent of version demo@1", "manifest", "corrupt"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.start(w.spec())
			batch := w.batch(1, sampledAt)
			_, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, c.spoil(w, batch)))
			if c.final {
				requireFinal(t, err, c.words...)
			} else {
				requireRetryable(t, err, c.words...)
			}
			w.requireNoVersion(1)
		})
	}
}

func (w *testEnv) parent() model.Version {
	v, err := w.version(0)
	require.NoError(w.t, err)
	return v
}

func (w *testEnv) path(digest string) string {
	path, err := w.blobs.Path(digest)
	require.NoError(w.t, err)
	return path
}

// overwrite replaces the content under digest.
func (w *testEnv) overwrite(digest string) {
	require.NoError(w.t, os.Chmod(w.path(digest), 0o600))
	require.NoError(w.t, os.WriteFile(w.path(digest), []byte("other content"), 0o600))
}

func TestADivergedGradientEndsTheRunWithARemedy(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	trainer := w.trainer()
	// The probability ratio of a token that was next to impossible is infinite.
	_, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.batch(1, -1e30)))
	requireFinal(t, err, "version demo@1", "not finite", "training.optimizer.learning_rate")
	w.requireNoVersion(1)

	// The weights in memory are then not mistaken for version 0.
	got, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	other := newTestEnv(t)
	other.start(other.spec())
	want, err := do[activities.VersionResult](t, other.trainer().TrainStep, trainStep(1, other.batch(1, sampledAt)))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// hidesVersion hides a version until it is about to be recorded.
type hidesVersion struct {
	*store.Store
	number int
}

func (l hidesVersion) Version(ctx context.Context, id model.VersionID) (model.Version, error) {
	if id.Number == l.number {
		return model.Version{}, record.ErrNotFound
	}
	return l.Store.Version(ctx, id)
}

// recordForeignVersion records a version 1 with other weights.
func (w *testEnv) recordForeignVersion(fingerprint string) model.Version {
	w.t.Helper()
	parent := w.parent()
	c, m, err := checkpoint.Load(w.t.Context(), w.blobs, parent.Manifest)
	require.NoError(w.t, err)
	c.Weights = c.Architecture.Init(99)
	m.Number, m.Parent = 1, 0
	manifest, weights, err := checkpoint.Save(w.t.Context(), w.blobs, c, m)
	require.NoError(w.t, err)
	v, created, err := w.store.PutVersion(w.t.Context(), model.Version{
		VersionID: model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: 1}, Manifest: manifest, Weights: weights, Fingerprint: fingerprint,
	})
	require.NoError(w.t, err)
	require.True(w.t, created)
	return v
}

func TestOtherWeightsUnderTheSameFingerprintAreRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	engine, err := engines("native")
	require.NoError(t, err)
	recordForeignVersion := w.recordForeignVersion(engine.Fingerprint())
	trainer := w.trainer()
	trainer.Versions = hidesVersion{w.store, 1}
	_, err = do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.batch(1, sampledAt)))
	requireFinal(t, err, "version demo@1 was made twice with different weights", recordForeignVersion.Weights, engine.Fingerprint())
	recorded, err := w.version(1)
	require.NoError(t, err)
	require.Equal(t, recordForeignVersion.Weights, recorded.Weights)
}

func TestTrainingGoesOnFromTheVersionThatStands(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	recordForeignVersion := w.recordForeignVersion("another machine")
	trainer := w.trainer()
	trainer.Versions = hidesVersion{w.store, 1}
	first, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.batch(1, sampledAt)))
	require.NoError(t, err)
	require.Equal(t, recordForeignVersion.Weights, first.Weights)

	// The trainer has other weights in memory, but the parent is the recorded version.
	trainer.Versions = w.store
	second, err := do[activities.VersionResult](t, trainer.TrainStep, trainStep(2, w.batch(2, sampledAt)))
	require.NoError(t, err)
	other := newTestEnv(t)
	other.start(other.spec())
	other.recordForeignVersion("another machine")
	want, err := do[activities.VersionResult](t, other.trainer().TrainStep, trainStep(2, other.batch(2, sampledAt)))
	require.NoError(t, err)
	require.Equal(t, want, second)
}
