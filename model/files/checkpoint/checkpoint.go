// Package checkpoint writes a policy's state as content-addressed blobs and reads it
// back: a manifest that names a config, the weights, the optimizer's moments and the
// canary, in the layout of docs/formats.md.
//
// It knows neither databases nor runs. Equal states give equal blobs, whatever the run's
// name is, so two executors of one update write the same blobs. The manifest is written
// last, so if a manifest can be read, its version is complete.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// Blobs keeps content under its digest. Put and Get are for small files. Files with
// tensors are streamed, so that no such file is ever completely in memory.
type Blobs interface {
	Put(ctx context.Context, data []byte) (digest string, err error)
	Get(ctx context.Context, digest string) ([]byte, error)
	// PutFrom stores what r returns until its end, and stores nothing if r fails.
	PutFrom(ctx context.Context, r io.Reader) (digest string, err error)
	// Open returns the content and its size in bytes. If the content does not match the
	// digest, the Read at its end returns an error other than io.EOF.
	Open(ctx context.Context, digest string) (content io.ReadCloser, size int64, err error)
	// Beside returns the path of a file for data that is derived from a content and is
	// removed together with it. The path is empty if digest is not a digest.
	Beside(digest, name string) string
}

// ErrCorrupt is wrapped when the files of a version contradict its manifest.
var ErrCorrupt = errors.New("corrupt checkpoint")

// The prefixes of the optimizer's tensors.
const (
	meanPrefix     = "mean."
	variancePrefix = "variance."
)

// Save stores c under m and sets m's Format, Updates, Architecture and Files. It refuses
// a checkpoint that Load could not read back. It returns the digests of the manifest and
// of the weights. An adapter's base has to be stored before: see SaveBase.
func Save(ctx context.Context, blobs Blobs, c model.Checkpoint, m model.Manifest) (manifest, weights string, err error) {
	return save(ctx, blobs, c, m, nil)
}

// SaveVersion is like Save, but for a version that samplers will load: it also stores the
// canary that they have to reproduce.
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
	m.LoRA, m.Base, m.BaseFiles = nil, nil, nil
	if err := complete(c); err != nil {
		return "", "", err
	}
	described, err := describe(&m, c)
	if err != nil {
		return "", "", err
	}
	maps.Copy(files, described)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		digest, err := blobs.Put(ctx, files[name])
		if err != nil {
			return "", "", fmt.Errorf("store %s: %w", name, err)
		}
		m.Files[name] = model.File{Digest: digest, Size: int64(len(files[name]))}
	}
	put := saveTensors
	if c.Architecture.Config != "" {
		put = saveFiles
	}
	if err := put(ctx, blobs, c, &m); err != nil {
		return "", "", err
	}
	text, err := m.Encode()
	if err != nil {
		return "", "", err
	}
	manifest, err = blobs.Put(ctx, text)
	if err != nil {
		return "", "", fmt.Errorf("store the manifest of version %d: %w", m.Number, err)
	}
	return manifest, m.Weights(), nil
}

// describe writes everything but the weights into m, and returns the small files of the
// version.
func describe(m *model.Manifest, c model.Checkpoint) (map[string][]byte, error) {
	if c.Architecture.Config != "" {
		return describeFiles(m, c)
	}
	config, err := hf.WriteConfig(c.Architecture)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", model.ConfigFile, err)
	}
	files := map[string][]byte{model.ConfigFile: config}
	if c.Adapter != nil {
		files[model.AdapterConfigFile], err = describeAdapter(m, c)
	}
	return files, err
}

// saveTensors stores the weights of c, and its moments.
func saveTensors(ctx context.Context, blobs Blobs, c model.Checkpoint, m *model.Manifest) (err error) {
	name, tensors := model.WeightsFile, c.Weights
	if c.Adapter != nil {
		name, tensors = model.AdapterFile, hf.PEFTTensors(c.Weights)
	}
	if m.Files[name], err = writeTensors(ctx, blobs, name, tensors); err != nil || c.Updates == 0 {
		return err
	}
	moments := append(prefixed(meanPrefix, c.Mean), prefixed(variancePrefix, c.Variance)...)
	if c.Moments == model.MomentsInt8 {
		m.Files[model.Optimizer8File], err = writeMoments8(ctx, blobs, moments)
	} else {
		m.Files[model.OptimizerFile], err = writeTensors(ctx, blobs, model.OptimizerFile, moments)
	}
	return err
}

// complete returns an error if c could not be read back.
func complete(c model.Checkpoint) error {
	if c.Architecture.Config != "" {
		if err := c.CheckFiles(); err != nil {
			return fmt.Errorf("weights: %w", err)
		}
		return nil
	}
	if err := c.Check(); err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if c.Moments != model.MomentsF32 && c.Moments != model.MomentsInt8 {
		return fmt.Errorf("moments %q: there are %q and %q", c.Moments, model.MomentsF32, model.MomentsInt8)
	}
	if c.Updates == 0 {
		return nil
	}
	if err := c.Match(c.Mean); err != nil {
		return fmt.Errorf("means after %d updates: %w", c.Updates, err)
	}
	if err := c.Match(c.Variance); err != nil {
		return fmt.Errorf("variances after %d updates: %w", c.Updates, err)
	}
	return nil
}

// Load reads the checkpoint whose manifest has the given digest.
func Load(ctx context.Context, blobs Blobs, manifest string) (model.Checkpoint, model.Manifest, error) {
	c, m, err := LoadWeights(ctx, blobs, manifest)
	if err != nil || m.Updates == 0 || c.Files != nil {
		return c, m, err
	}
	var moments model.Weights
	if _, eight := m.Files[model.Optimizer8File]; eight {
		c.Moments = model.MomentsInt8
		moments, err = readMoments8(ctx, blobs, m)
	} else {
		moments, err = readTensors(ctx, blobs, m, model.OptimizerFile)
	}
	if err != nil {
		return c, m, err
	}
	if c.Mean, err = pick(moments, meanPrefix, c); err != nil {
		return c, m, err
	}
	c.Variance, err = pick(moments, variancePrefix, c)
	return c, m, err
}

// LoadWeights reads what sampling needs: everything but the optimizer. The base of an
// adapter is read when an engine asks for it.
func LoadWeights(ctx context.Context, blobs Blobs, manifest string) (model.Checkpoint, model.Manifest, error) {
	m, err := readManifest(ctx, blobs, manifest)
	if err != nil {
		return model.Checkpoint{}, m, err
	}
	if m.Format == model.FilesManifestFormat {
		return loadFiles(blobs, m), m, nil
	}
	if m.LoRA != nil {
		c, err := loadAdapter(ctx, blobs, m)
		return c, m, err
	}
	c := model.Checkpoint{Architecture: m.Architecture, Updates: m.Updates}
	tensors, err := readTensors(ctx, blobs, m, model.WeightsFile)
	if err != nil {
		return c, m, err
	}
	c.Weights, err = pick(tensors, "", c)
	return c, m, err
}

// LoadCanary reads the canary of the version whose manifest has the given digest. It
// returns nil if there is none, as for versions of older or external trainers.
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

// pick returns the tensors with the prefix, without it, in the order of the tensors that
// c trains.
func pick(tensors model.Weights, prefix string, c model.Checkpoint) (model.Weights, error) {
	var out model.Weights
	for _, t := range tensors {
		if name, ok := strings.CutPrefix(t.Name, prefix); ok {
			t.Name = name
			out = append(out, t)
		}
	}
	arrange := func(w model.Weights) (model.Weights, error) { return hf.Arrange(c.Architecture, w) }
	if c.Adapter != nil {
		arrange = func(w model.Weights) (model.Weights, error) { return hf.ArrangeTensors(c.Tensors(), w) }
	}
	out, err := arrange(out)
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
