package fleet_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Without PyTorch, a run that samples with it can't be served, and says what to install.
// The others go on.
func TestEachRunIsSampledByTheEngineOfItsSpec(t *testing.T) {
	t.Setenv("FULGURITE_TORCH", "no-such-python")
	dir := t.TempDir()
	records, err := fleet.Open(t.Context(), filepath.Join(dir, "store.db"), filepath.Join(dir, "blobs"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, records.Close()) })
	require.NoError(t, records.Store.Migrate(t.Context()))
	sampler := records.RouteLocally(1)
	t.Cleanup(sampler.Close)
	for name, spec := range map[string]string{
		"torch":  `{"model": {"engine": "torch"}, "sampling": {"engine": "torch"}}`,
		"native": `{"model": {"engine": "torch"}, "sampling": {"engine": "native"}}`, "default": `{"model": {"engine": "native"}}`,
	} {
		_, _, err := records.Store.CreateRun(t.Context(), record.Run{Name: name, Spec: []byte(spec), SpecDigest: "sha256:spec"})
		require.NoError(t, err)
		v := model.VersionID{Run: name, Policy: model.DefaultPolicy}
		_, _, err = sampler.Sample(t.Context(), v, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
		published := sampler.Publish(t.Context(), v)
		if name != "torch" {
			require.ErrorIs(t, err, record.ErrNotFound, "the engine looks for the version")
			require.ErrorIs(t, published, record.ErrNotFound)
			continue
		}
		require.ErrorContains(t, err, "sampling.engine of run torch")
		require.ErrorContains(t, err, "no-such-python")
		require.ErrorContains(t, published, "doctor --install-torch")
	}
}
