// Package checkpoint writes a policy's state as content-addressed blobs and
// reads it back: a manifest that names a config, the weights, the optimizer's
// moments and the canary, in the layout of docs/formats.md.
//
// It knows neither databases nor runs. Equal states give equal blobs, whatever
// the run is called, so two executors of one update write the same thing; and
// the manifest is written last, so one that can be read is complete.
package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
)

// Blobs keeps content under its digest.
type Blobs interface {
	Put(ctx context.Context, data []byte) (digest string, err error)
	Get(ctx context.Context, digest string) ([]byte, error)
}

// ErrCorrupt is wrapped when the files of a version contradict its manifest.
var ErrCorrupt = errors.New("corrupt checkpoint")

// The prefixes of the optimizer's tensors.
const (
	meanPrefix     = "mean."
	variancePrefix = "variance."
)

// Save stores c under m, whose Format, Updates, Architecture and Files it fills
// in. A checkpoint that Load could not read back is refused. It returns the digests of the manifest and of the weights.
func Save(ctx context.Context, blobs Blobs, c model.Checkpoint, m model.Manifest) (manifest, weights string, err error) {
	return save(ctx, blobs, c, m, nil)
}

// SaveVersion is Save for what samplers will load: with the canary that they have
// to reproduce.
func SaveVersion(ctx context.Context, blobs Blobs, c model.Checkpoint, m model.Manifest, canary model.Canary) (manifest, weights string, err error) {
	text, err := canary.Encode()
	if err != nil {
		return "", "", err
	}
	return save(ctx, blobs, c, m, map[string][]byte{model.CanaryFile: text})
}

func save(ctx context.Context, blobs Blobs, c model.Checkpoint, m model.Manifest, files map[string][]byte) (manifest, weights string, err error) {
	files = maps.Clone(files)
	if files == nil {
		files = map[string][]byte{}
	}
	m.Format, m.Updates, m.Architecture, m.Files = model.ManifestFormat, c.Updates, c.Architecture, map[string]model.File{}
	if err := complete(c); err != nil {
		return "", "", err
	}
	if files[model.ConfigFile], err = hf.WriteConfig(c.Architecture); err != nil {
		return "", "", fmt.Errorf("encode %s: %w", model.ConfigFile, err)
	}
	if files[model.WeightsFile], err = encode(c.Weights); err != nil {
		return "", "", fmt.Errorf("encode %s: %w", model.WeightsFile, err)
	}
	if c.Updates > 0 {
		moments := append(prefixed(meanPrefix, c.Mean), prefixed(variancePrefix, c.Variance)...)
		if files[model.OptimizerFile], err = encode(moments); err != nil {
			return "", "", fmt.Errorf("encode %s: %w", model.OptimizerFile, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		digest, err := blobs.Put(ctx, files[name])
		if err != nil {
			return "", "", fmt.Errorf("store %s: %w", name, err)
		}
		m.Files[name] = model.File{Digest: digest, Size: int64(len(files[name]))}
	}
	text, err := m.Encode()
	if err != nil {
		return "", "", err
	}
	manifest, err = blobs.Put(ctx, text)
	if err != nil {
		return "", "", fmt.Errorf("store the manifest of version %d: %w", m.Number, err)
	}
	return manifest, m.Files[model.WeightsFile].Digest, nil
}

// complete refuses what could not be read back.
func complete(c model.Checkpoint) error {
	if err := c.Architecture.Match(c.Weights); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if c.Updates == 0 {
		return nil
	}
	if err := c.Architecture.Match(c.Mean); err != nil {
		return fmt.Errorf("means after %d updates: %w", c.Updates, err)
	}
	if err := c.Architecture.Match(c.Variance); err != nil {
		return fmt.Errorf("variances after %d updates: %w", c.Updates, err)
	}
	return nil
}

// Load reads the checkpoint whose manifest has the given digest.
func Load(ctx context.Context, blobs Blobs, manifest string) (model.Checkpoint, model.Manifest, error) {
	c, m, err := LoadWeights(ctx, blobs, manifest)
	if err != nil || m.Updates == 0 {
		return c, m, err
	}
	moments, err := readTensors(ctx, blobs, m, model.OptimizerFile)
	if err != nil {
		return c, m, err
	}
	if c.Mean, err = pick(moments, meanPrefix, c.Architecture); err != nil {
		return c, m, err
	}
	c.Variance, err = pick(moments, variancePrefix, c.Architecture)
	return c, m, err
}

// LoadWeights reads what sampling needs: everything but the optimizer.
func LoadWeights(ctx context.Context, blobs Blobs, manifest string) (model.Checkpoint, model.Manifest, error) {
	m, err := readManifest(ctx, blobs, manifest)
	if err != nil {
		return model.Checkpoint{}, m, err
	}
	tensors, err := readTensors(ctx, blobs, m, model.WeightsFile)
	if err != nil {
		return model.Checkpoint{}, m, err
	}
	weights, err := pick(tensors, "", m.Architecture)
	return model.Checkpoint{Architecture: m.Architecture, Weights: weights, Updates: m.Updates}, m, err
}

// LoadCanary reads the canary of the version whose manifest has the given digest;
// nil if it has none, like those of older or external trainers.
func LoadCanary(ctx context.Context, blobs Blobs, manifest string) (*model.Canary, error) {
	m, err := readManifest(ctx, blobs, manifest)
	if err != nil {
		return nil, err
	}
	if _, ok := m.Files[model.CanaryFile]; !ok {
		return nil, nil
	}
	data, err := readFile(ctx, blobs, m, model.CanaryFile)
	if err != nil {
		return nil, err
	}
	c, err := model.ParseCanary(data)
	if err != nil {
		return nil, fmt.Errorf("%w: read %s of version %d: %w", ErrCorrupt, model.CanaryFile, m.Number, err)
	}
	return &c, nil
}

func readManifest(ctx context.Context, blobs Blobs, digest string) (model.Manifest, error) {
	text, err := blobs.Get(ctx, digest)
	if err != nil {
		return model.Manifest{}, fmt.Errorf("read manifest %s: %w", digest, err)
	}
	m, err := model.ParseManifest(text)
	if err != nil {
		return m, fmt.Errorf("manifest %s: %w", digest, err)
	}
	return m, nil
}

func readFile(ctx context.Context, blobs Blobs, m model.Manifest, name string) ([]byte, error) {
	f, ok := m.Files[name]
	if !ok {
		return nil, fmt.Errorf("%w: version %d has no %s", ErrCorrupt, m.Number, name)
	}
	data, err := blobs.Get(ctx, f.Digest)
	if err != nil {
		return nil, fmt.Errorf("read %s of version %d: %w", name, m.Number, err)
	}
	if int64(len(data)) != f.Size {
		return nil, fmt.Errorf("%w: %s of version %d has %d bytes, its manifest says %d", ErrCorrupt, name, m.Number, len(data), f.Size)
	}
	return data, nil
}

func readTensors(ctx context.Context, blobs Blobs, m model.Manifest, name string) (model.Weights, error) {
	data, err := readFile(ctx, blobs, m, name)
	if err != nil {
		return nil, err
	}
	tensors, _, err := hf.ReadSafetensors(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("%w: read %s of version %d: %w", ErrCorrupt, name, m.Number, err)
	}
	return tensors, nil
}

// pick orders the tensors under prefix as the architecture does.
func pick(tensors model.Weights, prefix string, a model.Architecture) (model.Weights, error) {
	var out model.Weights
	for _, t := range tensors {
		if name, ok := strings.CutPrefix(t.Name, prefix); ok {
			t.Name = name
			out = append(out, t)
		}
	}
	out, err := hf.Arrange(a, out)
	if err != nil {
		return nil, fmt.Errorf("%w: tensors %q: %w", ErrCorrupt, prefix, err)
	}
	return out, nil
}

func prefixed(prefix string, w model.Weights) model.Weights {
	out := make(model.Weights, len(w))
	for i, t := range w {
		t.Name = prefix + t.Name
		out[i] = t
	}
	return out
}

func encode(w model.Weights) ([]byte, error) {
	var b bytes.Buffer
	err := hf.WriteSafetensors(&b, w, map[string]string{"format": "pt"})
	return b.Bytes(), err
}
