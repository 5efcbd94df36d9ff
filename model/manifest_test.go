package model_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func manifest() model.Manifest {
	file := model.File{Digest: "sha256:" + strings.Repeat("0a", 32), Size: 7}
	return model.Manifest{
		Format: model.ManifestFormat, Policy: "main", Number: 3, Parent: 2, Updates: 3, Architecture: model.Tiny(16), Codec: "compact",
		Engine: "native", Fingerprint: "f", Batch: file.Digest, Metrics: map[string]float64{"train/loss": 0.5, "reward/mean": 1},
		Files: map[string]model.File{model.ConfigFile: file, model.WeightsFile: file, model.OptimizerFile: file},
	}
}

func TestManifestsRoundTripAndEncodeTheSame(t *testing.T) {
	t.Parallel()
	first, err := manifest().Encode()
	require.NoError(t, err)
	second, err := manifest().Encode()
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
	got, err := model.ParseManifest(first)
	require.NoError(t, err)
	require.Equal(t, manifest(), got)

	// A later format may have more fields.
	got, err = model.ParseManifest([]byte(strings.Replace(string(first), "{", `{"later": 1,`, 1)))
	require.NoError(t, err)
	require.Equal(t, manifest(), got)
	_, err = model.ParseManifest(first[:20])
	require.ErrorIs(t, err, model.ErrManifest)
}

func TestBadManifestsAreRefusedByField(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*model.Manifest){
		`format is ""`:                       func(m *model.Manifest) { m.Format = "" },
		"policy is empty":                    func(m *model.Manifest) { m.Policy = "" },
		"number 3 cannot have parent 3":      func(m *model.Manifest) { m.Parent = 3 },
		"number 3 cannot have parent -2":     func(m *model.Manifest) { m.Parent = -2 },
		"number -1 cannot have parent -1":    func(m *model.Manifest) { m.Number, m.Parent = -1, -1 },
		"updates is -1":                      func(m *model.Manifest) { m.Updates = -1 },
		"codec is empty":                     func(m *model.Manifest) { m.Codec = "" },
		"not a sha256 digest":                func(m *model.Manifest) { m.Batch = "sha256:xyz" },
		"layers is 0":                        func(m *model.Manifest) { m.Architecture.Layers = 0 },
		"file model.safetensors is absent":   func(m *model.Manifest) { delete(m.Files, model.WeightsFile) },
		`file name "../x"`:                   func(m *model.Manifest) { m.Files["../x"] = m.Files[model.ConfigFile] },
		"file config.json has digest":        func(m *model.Manifest) { m.Files[model.ConfigFile] = model.File{Digest: "md5:0", Size: 1} },
		"optimizer.safetensors has digest":   func(m *model.Manifest) { m.Files[model.OptimizerFile] = model.File{Digest: m.Batch} },
		"metric train/gradient_norm is +Inf": func(m *model.Manifest) { m.Metrics["train/gradient_norm"] = math.Inf(1) },
	} {
		m := manifest()
		spoil(&m)
		_, err := m.Encode()
		require.ErrorIs(t, err, model.ErrManifest, want)
		require.ErrorContains(t, err, want)
	}
}
