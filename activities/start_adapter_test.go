package activities_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// exportAdapter trains a step of an adapter and writes it as `fulgurite export --format peft`
// does.
func (w *testEnv) exportAdapter() (of model.Version, dir string) {
	w.t.Helper()
	s := w.spec()
	s.Model.LoRA = &spec.LoRA{Rank: 2, Targets: []string{"v_proj", "q_proj"}, TrainableTokens: []string{"57", "42"}}
	w.start(s)
	_, err := do[activities.VersionResult](w.t, w.trainer().TrainStep, trainStep(1, w.groups(1, 4)))
	require.NoError(w.t, err)
	of, err = w.version(1)
	require.NoError(w.t, err)
	c, _, err := checkpoint.Load(w.t.Context(), w.blobs, of.Manifest)
	require.NoError(w.t, err)
	dir = filepath.Join(w.t.TempDir(), "adapter")
	require.NoError(w.t, hf.WritePEFT(dir, c, filepath.Join(w.dir, "base")))
	return of, dir
}

// startFrom returns the input of a run whose version 0 is the adapter in dir.
func (w *testEnv) startFrom(dir string) activities.PrepareRunInput {
	w.t.Helper()
	s := w.spec()
	s.Model.LoRA = &spec.LoRA{Adapter: dir}
	text, err := json.Marshal(s.Resolve(w.dir))
	require.NoError(w.t, err)
	return activities.PrepareRunInput{Spec: text, Run: "other", WorkflowID: "other", ExecutionID: "execution-2"}
}

// A canary has the log-probabilities of a version, and its Weights cover the base and the
// adapter.
func TestAnExportedAdapterIsVersion0OfAnotherRunToTheBit(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	exported, dir := w.exportAdapter()
	prepared, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.startFrom(dir))
	require.NoError(t, err)
	l := prepared.Spec.Model.LoRA
	require.Equal(t, spec.LoRA{Rank: 2, Alpha: 16, Targets: []string{"q_proj", "v_proj"}, TrainableTokens: []string{"57", "42"}, Adapter: dir, AdapterDigest: l.AdapterDigest}, *l)

	made, err := do[activities.VersionResult](t, w.trainer().InitPolicy, ofOther())
	require.NoError(t, err)
	require.Equal(t, exported.Weights, made.Weights)
	v, err := w.store.Version(t.Context(), model.VersionID{Run: "other", Policy: model.DefaultPolicy})
	require.NoError(t, err)
	have, m, err := checkpoint.LoadWeights(t.Context(), w.blobs, v.Manifest)
	require.NoError(t, err)
	want, of, err := checkpoint.LoadWeights(t.Context(), w.blobs, exported.Manifest)
	require.NoError(t, err)
	require.Equal(t, want.Weights, have.Weights)
	require.Equal(t, []int32{57, 42}, have.Adapter.Tokens)
	require.Equal(t, of.Base, m.Base)
	require.Equal(t, of.Files[model.CanaryFile], m.Files[model.CanaryFile], "the same log-probabilities")
	require.Equal(t, l.AdapterDigest, m.Files[model.AdapterFile].Digest)
	require.Zero(t, m.Updates, "moments begin anew")
	require.NoError(t, w.sampler().Publish(t.Context(), v.VersionID))
}

func TestAnAdapterThatChangedSinceItsRunBeganIsRefused(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, dir := w.exportAdapter()
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.startFrom(dir))
	require.NoError(t, err)
	path := filepath.Join(dir, model.AdapterFile)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
	_, err = do[activities.VersionResult](t, w.trainer().InitPolicy, ofOther())
	requireFinal(t, err, "adapter_model.safetensors has the digest sha256:")
}

func TestAnAdapterOfAnotherBaseIsRefusedByItsDigest(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	exported, dir := w.exportAdapter()
	c, _, err := checkpoint.Load(t.Context(), w.blobs, exported.Manifest)
	require.NoError(t, err)
	require.NoError(t, hf.WritePEFT(dir, c, c.Adapter.Base.Digest)) // the name that a version uses for its base
	in := w.startFrom(dir)
	var s spec.Spec
	require.NoError(t, json.Unmarshal(in.Spec, &s))
	s.Model.Base = t.TempDir()
	require.NoError(t, hf.WriteDirectory(s.Model.Base, c.Architecture, c.Architecture.Init(9)))
	in.Spec, err = json.Marshal(s)
	require.NoError(t, err)
	_, err = do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, in)
	require.NoError(t, err)
	_, err = do[activities.VersionResult](t, w.trainer().InitPolicy, ofOther())
	requireFinal(t, err, "base_model_name_or_path: it was made for base "+c.Adapter.Base.Digest)
}

func TestAnAdapterThatCanNotBeReadRefusesTheRun(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	_, dir := w.exportAdapter()
	require.NoError(t, os.Remove(filepath.Join(dir, model.AdapterFile)))
	_, err := do[activities.PrepareRunResult](t, w.coordinator.PrepareRun, w.startFrom(dir))
	require.ErrorContains(t, err, "model.lora.adapter: ")
	require.ErrorContains(t, err, "adapter_model.safetensors: no such file")
}
