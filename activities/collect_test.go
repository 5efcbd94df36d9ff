package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
)

// steps trains the versions from one step to another. Each has a new trainer, which saves
// its state after each update.
func (w *testEnv) steps(from, to int) {
	w.t.Helper()
	for step := from; step <= to; step++ {
		batch := w.groups(step, 4)
		trainer := w.trainer()
		trainer.SaveEvery = 1
		_, err := do[activities.VersionResult](w.t, trainer.TrainStep, trainStep(step, batch))
		require.NoError(w.t, err)
		require.NoError(w.t, w.recordStep(step, batch))
	}
}

func TestARunThatKeepsFewVersionsEndsInTheSameWeights(t *testing.T) {
	t.Parallel()
	all, few := newTestEnv(t), newTestEnv(t)
	s := all.several()
	s.Training.Steps = 5
	all.start(s)
	all.steps(1, 5)
	s.Training.Keep = &spec.Keep{Last: 1}
	few.start(s)
	few.coordinator.Collector = &retention.Collector{Store: few.store, Blobs: few.blobs}
	few.steps(1, 5)

	for n := range 6 {
		want, err := all.version(n)
		require.NoError(t, err)
		got, err := few.version(n)
		require.NoError(t, err)
		require.Equal(t, want.Weights, got.Weights)
		_, _, err = checkpoint.Load(t.Context(), few.blobs, got.Manifest)
		if n == 0 || n >= 4 {
			require.NoError(t, err)
			require.Zero(t, got.Collected)
			continue
		}
		require.ErrorIs(t, err, record.ErrNotFound)
		require.NotZero(t, got.Collected)
	}
	require.Len(t, all.superseded(), 15, "three of each step were saved, and nobody collected")
	require.Empty(t, few.superseded())
	// A step that a reset run requests again is on record.
	got, err := do[activities.VersionResult](t, few.trainer().TrainStep, trainStep(2, few.groups(2, 4)))
	require.NoError(t, err)
	require.Equal(t, 2, got.Number)
}

// superseded returns the manifests of saved updates that wait for a collection.
func (w *testEnv) superseded() (manifests []string) {
	w.t.Helper()
	_, err := w.store.CollectSuperseded(w.t.Context(), nil, func(superseded, _ []string) (done, kept []string, err error) {
		manifests = superseded
		return superseded, nil, nil
	})
	require.NoError(w.t, err)
	return manifests
}

// recordStep records a step like a workflow does.
func (w *testEnv) recordStep(step int, batch string) error {
	_, err := environment(w.coordinator.RecordStep, nil).ExecuteActivity(w.coordinator.RecordStep, activities.RecordStepInput{
		Run: "demo", Policy: model.DefaultPolicy, Step: step, Batch: batch,
	})
	return err
}

// stuck is a collector that fails.
type stuck struct{}

func (stuck) Collect(context.Context, string) error { return errors.New("the disk is read-only") }

func TestAStepStandsThoughNothingCouldBeCollected(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.several())
	w.coordinator.Collector = stuck{}
	require.NoError(t, w.recordStep(1, w.groups(1, 4)))
	steps, err := w.store.Steps(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Len(t, steps, 1)
}
