package checkpoint

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// SaveBaseFiles stores the files with the weights of a model that only engine torch
// computes, as the base of adapters. Saving equal files again stores nothing.
func SaveBaseFiles(ctx context.Context, blobs Blobs, a model.Architecture, files map[string]model.Content) (*model.Base, error) {
	stored := map[string]model.File{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := storeContent(ctx, blobs, name, files[name])
		if err != nil {
			return nil, err
		}
		stored[name] = f
	}
	return newFilesBase(blobs, a, stored), nil
}

// storeContent stores a file as it is read.
func storeContent(ctx context.Context, blobs Blobs, name string, c model.Content) (model.File, error) {
	content, err := c.Open(ctx)
	if err != nil {
		return model.File{}, fmt.Errorf("store %s: %w", name, err)
	}
	defer func() { _ = content.Close() }() // only read
	return writeFile(ctx, blobs, name, func(w io.Writer) error {
		_, err := io.Copy(w, content)
		return err
	})
}

func newFilesBase(blobs Blobs, a model.Architecture, files map[string]model.File) *model.Base {
	b := &model.Base{Digest: model.BaseIdentity(files), Architecture: a, Files: map[string]model.Content{}}
	for name, f := range files {
		b.Size += f.Size
		b.Files[name] = contentOf(blobs, name, f)
	}
	return b
}

// contentOf returns the content of a stored file.
func contentOf(blobs Blobs, name string, f model.File) model.Content {
	return model.Content{File: f, Open: func(ctx context.Context) (io.ReadCloser, error) {
		content, size, err := blobs.Open(ctx, f.Digest)
		if err == nil && size != f.Size {
			err = fmt.Errorf("%w: it has %d bytes, its manifest says %d", ErrCorrupt, size, f.Size)
			_ = content.Close() // only read
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		return content, nil
	}}
}

// saveFiles is like saveTensors, but for weights that lie in files.
func saveFiles(ctx context.Context, blobs Blobs, c model.Checkpoint, m *model.Manifest) error {
	if c.Files == nil {
		return fmt.Errorf("weights: %w: a new adapter has no files", model.ErrAdapter)
	}
	contents := maps.Clone(c.Files.Weights)
	if c.Updates > 0 {
		contents[model.OptimizerFile] = c.Files.Optimizer
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		f, err := storeContent(ctx, blobs, name, contents[name])
		if err != nil {
			return err
		}
		m.Files[name] = f
	}
	return nil
}

// describeFiles writes what m records about a checkpoint whose weights lie in files into
// m, and returns the small files of the version.
func describeFiles(m *model.Manifest, c model.Checkpoint) (map[string][]byte, error) {
	m.Format = model.FilesManifestFormat
	files := map[string][]byte{model.ConfigFile: []byte(c.Architecture.Config)}
	if c.Adapter == nil {
		return files, nil
	}
	m.LoRA, m.BaseFiles = &c.Adapter.LoRA, map[string]model.File{}
	for name, f := range c.Adapter.Base.Files {
		m.BaseFiles[name] = f.File
	}
	config, err := hf.WritePEFTConfig(c, c.Adapter.Base.Digest)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", model.AdapterConfigFile, err)
	}
	files[model.AdapterConfigFile] = config
	return files, nil
}

// loadFiles returns a version whose weights lie in files. It does not read them yet.
func loadFiles(blobs Blobs, m model.Manifest) model.Checkpoint {
	c := model.Checkpoint{Architecture: m.Architecture, Updates: m.Updates, Files: &model.Files{Weights: map[string]model.Content{}}}
	if m.LoRA != nil {
		c.Adapter = &model.Adapter{LoRA: *m.LoRA, Base: newFilesBase(blobs, m.Architecture, m.BaseFiles)}
	}
	for name, f := range m.Files {
		content := contentOf(blobs, fmt.Sprintf("%s of version %d", name, m.Number), f)
		switch name {
		case model.ConfigFile, model.AdapterConfigFile, model.CanaryFile:
		case model.OptimizerFile:
			c.Files.Optimizer = content
		default:
			c.Files.Weights[name] = content
		}
	}
	return c
}
