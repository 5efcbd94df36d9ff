package activities_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// evaluating returns the input for the run "other", which evaluates a version of the run
// "demo".
func (w *testEnv) evaluating(version string) activities.PrepareRunInput {
	w.t.Helper()
	s := w.spec()
	s.Model = spec.Model{Version: version}
	s.Tasks = spec.Tasks{Test: s.Tasks.Train}
	s.Training, s.Evaluation = spec.Training{}, spec.Evaluation{Only: "test"}
	text, err := json.Marshal(s.Resolve(w.dir))
	require.NoError(w.t, err)
	return activities.PrepareRunInput{Spec: text, Run: "other", WorkflowID: "other", ExecutionID: "execution-2"}
}

func ofOther() activities.InitPolicyInput {
	return activities.InitPolicyInput{Run: "other", Policy: model.DefaultPolicy}
}

func TestAVersionOfAnotherRunBecomesVersion0(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]func(*testEnv) spec.Spec{
		"whole": (*testEnv).spec,
		"adapter": func(w *testEnv) spec.Spec {
			s := w.spec()
			s.Model.LoRA = &spec.LoRA{Rank: 2}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.start(source(w))
			trained, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.groups(1, 4)))
			require.NoError(t, err)

			prepared, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.evaluating("demo@1"))
			require.NoError(t, err)
			demo, err := w.catalog.Spec(t.Context(), "demo")
			require.NoError(t, err)
			require.Equal(t, demo.Model.Codec, prepared.Spec.Model.Codec)
			require.Equal(t, demo.Model.Base, prepared.Spec.Model.Base)
			require.Equal(t, demo.Model.LoRA, prepared.Spec.Model.LoRA)
			for range 2 { // another executor gets the same
				copied, err := do[activities.VersionResult](t, w.trainer().InitPolicy, ofOther())
				require.NoError(t, err)
				require.Equal(t, trained.Weights, copied.Weights)
				require.Zero(t, copied.Number)
			}
			id := model.VersionID{Run: "other", Policy: model.DefaultPolicy}
			v, err := w.store.Version(t.Context(), id)
			require.NoError(t, err)
			text, err := w.blobs.Get(t.Context(), v.Manifest)
			require.NoError(t, err)
			m, err := model.ParseManifest(text)
			require.NoError(t, err)
			require.Equal(t, []int{0, -1}, []int{m.Number, m.Parent})
			_, _, err = checkpoint.Load(t.Context(), w.blobs, v.Manifest)
			require.NoError(t, err)
			require.NoError(t, w.sampler().Publish(t.Context(), id), "it reproduces the canary of the version that it is")
		})
	}
}

func TestARunTrainsFromAVersionOfAnotherRun(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.spec()
	s.Credit.Assignment = credit.TurnGAE // with a critic
	w.start(s)
	trained, err := do[activities.VersionResult](t, w.trainer().TrainStep, trainStep(1, w.groups(1, 4)))
	require.NoError(t, err)
	s.Model = spec.Model{Version: "demo@1"}
	in := w.request(s)
	in.Run, in.WorkflowID, in.ExecutionID = "other", "other", "execution-2"
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in)
	require.NoError(t, err)
	copied, err := do[activities.VersionResult](t, w.trainer().InitPolicy, ofOther())
	require.NoError(t, err)
	require.Equal(t, trained.Weights, copied.Weights)
	v, err := w.store.Version(t.Context(), model.VersionID{Run: "other", Policy: model.DefaultPolicy})
	require.NoError(t, err)
	c, m, err := checkpoint.Load(t.Context(), w.blobs, v.Manifest)
	require.NoError(t, err)
	require.Zero(t, c.Updates, "with fresh moments")
	require.NotContains(t, m.Files, model.OptimizerFile)
	critic, err := w.store.Version(t.Context(), model.VersionID{Run: "other", Policy: model.CriticPolicy})
	require.NoError(t, err)
	require.Zero(t, critic.Number)
}

func TestAVersionThatIsNotThereIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.evaluating("demo@0"))
	requireRefused(t, err, "model.version: no run demo is on record")
	w.start(w.spec())
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.evaluating("demo@7"))
	require.NoError(t, err)
	_, err = do[activities.VersionResult](t, w.trainer().InitPolicy, ofOther())
	requireNoRetry(t, err, "model.version: run demo has no version 7")
}

// If a collection removes the files between the reading of the row and the copy, there is
// no version without files.
func TestAVersionWhoseFilesAreGoneIsNotCopied(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.store.Files = w.blobs
	w.start(w.spec())
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.evaluating("demo@0"))
	require.NoError(t, err)
	v, err := w.store.Version(t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy})
	require.NoError(t, err)
	require.NoError(t, w.blobs.Remove(t.Context(), v.Weights))
	_, err = do[activities.VersionResult](t, w.trainer().InitPolicy, ofOther())
	requireRetryable(t, err, store.ErrFileGone.Error())
	_, err = w.store.Version(t.Context(), model.VersionID{Run: "other", Policy: model.DefaultPolicy})
	require.ErrorIs(t, err, record.ErrNotFound)
}
