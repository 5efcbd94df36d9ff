package checkpoint

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// describeAdapter writes what m records about c's adapter into m, and returns the
// adapter's config.
func describeAdapter(m *model.Manifest, c model.Checkpoint) ([]byte, error) {
	base := c.Adapter.Base
	m.Format, m.LoRA, m.Base = model.AdapterManifestFormat, &c.Adapter.LoRA, &model.File{Digest: base.Digest, Size: base.Size}
	config, err := hf.WritePEFTConfig(c, base.Digest)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", model.AdapterConfigFile, err)
	}
	return config, nil
}

// loadAdapter reads the adapter of a version, but not its base.
func loadAdapter(ctx context.Context, blobs Blobs, m model.Manifest) (model.Checkpoint, error) {
	c := model.Checkpoint{
		Architecture: m.Architecture, Updates: m.Updates,
		Adapter: &model.Adapter{LoRA: *m.LoRA, Base: newBase(ctx, blobs, m.Architecture, *m.Base)},
	}
	text, err := readFile(ctx, blobs, m, model.AdapterConfigFile)
	if err != nil {
		return c, err
	}
	l, base, err := hf.ReadPEFTConfig(text)
	if err != nil {
		return c, fmt.Errorf("%w: version %d: %w", ErrCorrupt, m.Number, err)
	}
	if base != m.Base.Digest || !l.Equal(*m.LoRA) {
		return c, fmt.Errorf("%w: version %d: %s is that of an adapter %+v of base %s, the manifest says %+v of %s",
			ErrCorrupt, m.Number, model.AdapterConfigFile, l, base, *m.LoRA, m.Base.Digest)
	}
	tensors, err := readTensors(ctx, blobs, m, model.AdapterFile)
	if err != nil {
		return c, err
	}
	if c.Weights, err = hf.ArrangePEFT(c, tensors); err != nil {
		return c, fmt.Errorf("%w: %s of version %d: %w", ErrCorrupt, model.AdapterFile, m.Number, err)
	}
	return c, nil
}
