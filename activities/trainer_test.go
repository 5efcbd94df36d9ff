package activities_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/fulgurite/fulgurite/activities"
)

// firstBeat closes beat when an activity sends its first heartbeat.
func firstBeat(beat chan<- struct{}) setup {
	var once sync.Once
	return func(env *testsuite.TestActivityEnvironment) {
		env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) { once.Do(func() { close(beat) }) })
	}
}

// While one step is made, another one on the same worker waits for its turn. Neither may
// count as dead.
func TestWhoWaitsForItsTurnBeatsToo(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	trainer, sleep := w.trainer(), newSuspended()
	watch(trainer, sleep.once())
	results, errs := make([]activities.VersionResult, 2), make([]error, 2)
	first, second := make(chan struct{}), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { results[0], errs[0] = do[activities.VersionResult](t, trainer.TrainStep, in, firstBeat(first)) })
	<-sleep.reached
	done.Go(func() {
		results[1], errs[1] = do[activities.VersionResult](t, trainer.TrainStep, in, firstBeat(second))
	})
	<-first
	<-second
	close(sleep.wake)
	done.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Equal(t, results[0], results[1])
}

func TestWhoWaitsForItsTurnMayGiveUp(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	trainer, sleep := w.trainer(), newSuspended()
	seen := watch(trainer, sleep.once())
	var done sync.WaitGroup
	done.Go(func() { _, _ = do[activities.VersionResult](t, trainer.TrainStep, in) })
	<-sleep.reached
	ctx, cancel := context.WithCancel(t.Context())
	beat := make(chan struct{})
	done.Go(func() {
		<-beat
		cancel()
	})
	_, err := do[activities.VersionResult](t, trainer.TrainStep, in, under(ctx), firstBeat(beat))
	close(sleep.wake)
	done.Wait()
	require.ErrorContains(t, err, "wait to make version demo@1")
	require.Len(t, seen.made, 1)
}

// hanging is an update that ends only when its context does.
func hanging(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAnUpdateThatHangsIsToldToEnd(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	trainer := w.trainer()
	trainer.Stall = time.Second
	watch(trainer, hanging)
	_, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	requireRetryable(t, err, "version demo@1", "no progress for 1s")
	w.requireNoVersion(1)

	watch(trainer, nil)
	_, err = do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err, "the next attempt has its turn")
}

func TestEachRowOfAnUpdateIsProgress(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.warm())
	trainer := w.trainer()
	var steps []uint64
	var updates []int
	seen := watch(trainer, nil)
	seen.row = func() { // called on one thread
		p := activities.Progress(trainer)
		steps, updates = append(steps, p.Work), append(updates, p.Updates)
	}
	_, err := do[activities.VersionResult](t, trainer.InitPolicy, initPolicy())
	require.NoError(t, err)
	require.Len(t, steps, 2*warmUpdates)
	for i, n := range updates {
		require.Equal(t, i/2, n, "updates before row %d", i)
	}
	require.Equal(t, warmUpdates, activities.Progress(trainer).Updates)
	_, err = do[activities.VersionResult](t, trainer.TrainStep, trainStep(1, w.groups(1, 4)))
	require.NoError(t, err)
	require.Len(t, steps, 2*warmUpdates+8)
	for i := range steps[1:] {
		require.Greater(t, steps[i+1], steps[i])
	}
}

func TestSettingsOfARunUnderWayAreObeyed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	in.Set = map[string]float64{"training.optimizer.learning_rate": 7e-4}
	trainer := w.trainer()
	seen := watch(trainer, nil)
	v, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	require.InDelta(t, 7e-4, seen.made[0].adamW.LearningRate, 0)
	require.InDelta(t, 7e-4, v.Metrics["train/learning_rate"], 0)

	in = trainStep(2, w.batch(2, sampledAt))
	in.Set = map[string]float64{"model.engine": 1}
	_, err = do[activities.VersionResult](t, trainer.TrainStep, in)
	requireFinal(t, err, "model.engine", "can't be set")
}
