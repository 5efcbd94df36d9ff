// Package checkpoint writes a policy's state as content-addressed blobs and
// reads it back: a manifest that names a config, the weights and the optimizer's
// moments, in the layout of docs/formats.md.
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
	m.Format, m.Updates, m.Architecture, m.Files = model.ManifestFormat, c.Updates, c.Architecture, map[string]model.File{}
	if err := complete(c); err != nil {
		return "", "", err
	}
	config, err := hf.WriteConfig(c.Architecture)
	if err != nil {
		return "", "", fmt.Errorf("encode %s: %w", model.ConfigFile, err)
	}
	files := map[string][]byte{model.ConfigFile: config}
	if files[model.WeightsFile], err = encode(c.Weights); err != nil {
		return "", "", fmt.Errorf("encode %s: %w", model.WeightsFile, err)
	}
	if c.Updates > 0 {
		moments := append(prefixed(meanPrefix, c.Mean), prefixed(variancePrefix, c.Variance)...)
		if files[model.OptimizerFile], err = encode(moments); err != nil {
			return "", "", fmt.Errorf("encode %s: %w", model.OptimizerFile, err)
		}
	}
	for name, data := range files {
		digest, err := blobs.Put(ctx, data)
		if err != nil {
			return "", "", fmt.Errorf("store %s: %w", name, err)
		}
		m.Files[name] = model.File{Digest: digest, Size: int64(len(data))}
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
	text, err := blobs.Get(ctx, manifest)
	if err != nil {
		return model.Checkpoint{}, model.Manifest{}, fmt.Errorf("read manifest %s: %w", manifest, err)
	}
	m, err := model.ParseManifest(text)
	if err != nil {
		return model.Checkpoint{}, m, fmt.Errorf("manifest %s: %w", manifest, err)
	}
	tensors, err := readTensors(ctx, blobs, m, model.WeightsFile)
	if err != nil {
		return model.Checkpoint{}, m, err
	}
	weights, err := pick(tensors, "", m.Architecture)
	return model.Checkpoint{Architecture: m.Architecture, Weights: weights, Updates: m.Updates}, m, err
}

func readTensors(ctx context.Context, blobs Blobs, m model.Manifest, name string) (model.Weights, error) {
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
