package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
)

// indexFile maps tensors to files if the weights of a checkpoint are in several files.
const indexFile = model.WeightsFile + ".index.json"

// ReadDirectory reads config.json and the weights, from one model.safetensors or
// from the files that model.safetensors.index.json names, widened to float32. A model is
// untied, whatever config.json says, if its output layer has other numbers than its
// embedding.
func ReadDirectory(dir string) (model.Architecture, model.Weights, error) {
	text, err := textfile.Read(filepath.Join(dir, model.ConfigFile))
	if err = absent(dir, err); err != nil {
		return model.Architecture{}, nil, fmt.Errorf("read model %s: %w", dir, err)
	}
	a, err := ReadConfig(text)
	if err != nil {
		return model.Architecture{}, nil, fmt.Errorf("read model %s: %w", dir, err)
	}
	names, err := shards(dir)
	if err != nil {
		return model.Architecture{}, nil, fmt.Errorf("read model %s: %w", dir, err)
	}
	var all model.Weights
	for _, name := range names {
		w, err := readFile(filepath.Join(dir, name))
		if err = absent(dir, err); err != nil {
			return model.Architecture{}, nil, fmt.Errorf("read model %s: %s: %w", dir, name, err)
		}
		all = append(all, w...)
	}
	if a.Tied && !a.ValueHead && carriesHead(all) {
		a.Tied = false
	}
	w, err := Arrange(a, all)
	if err != nil {
		return model.Architecture{}, nil, fmt.Errorf("read model %s: %w", dir, err)
	}
	return a, w, nil
}

// shards lists the files that hold the weights.
func shards(dir string) ([]string, error) {
	text, err := textfile.Read(filepath.Join(dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return []string{model.WeightsFile}, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, model.WeightsFile)); err == nil {
		return nil, fmt.Errorf("%w: both %s and %s are there", ErrFormat, model.WeightsFile, indexFile)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := model.DecodeJSON(text, &index); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, indexFile, err)
	}
	names := slices.Compact(slices.Sorted(maps.Values(index.WeightMap)))
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s names no file", ErrFormat, indexFile)
	}
	for _, name := range names {
		// The index is not trusted: its names must not lead out of its directory.
		if name == "." || name != filepath.Base(name) || !filepath.IsLocal(name) || strings.ContainsRune(name, '\\') {
			return nil, fmt.Errorf("%w: %s names the file %q", ErrFormat, indexFile, name)
		}
	}
	return names, nil
}

func readFile(path string) (model.Weights, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	w, _, err := ReadSafetensors(f, stat.Size())
	return w, named(f, err)
}

// Arrange puts tensors, which may be in any order, into the order of a.Tensors and checks
// their shapes. A tensor that a does not need is an error, since the file would then hold
// another model. Two exceptions occur in published checkpoints and are ignored: a copy of
// tied embeddings, and the rotary frequencies of old Llama files.
func Arrange(a model.Architecture, tensors model.Weights) (model.Weights, error) {
	if a.Tied && !a.ValueHead && carriesHead(tensors) {
		return nil, fmt.Errorf("%w: tensor %s differs from %s, to which the model ties it", ErrFormat, outputLayer, inputLayer)
	}
	carried := func(t model.Tensor) bool { return ignored(a, t.Name) }
	return ArrangeTensors(a.Tensors(), slices.DeleteFunc(slices.Clone(tensors), carried))
}

// carriesHead reports whether tensors hold an output layer that is no copy of the
// embedding.
func carriesHead(tensors model.Weights) bool {
	head, err := tensors.Tensor(outputLayer)
	if err != nil {
		return false
	}
	table, err := tensors.Tensor(inputLayer)
	return err == nil && (!slices.Equal(head.Shape, table.Shape) || !slices.Equal(head.Data, table.Data))
}

// ArrangeTensors puts tensors into the order of w, whose names and shapes they must
// have.
func ArrangeTensors(w, tensors model.Weights) (model.Weights, error) {
	byName := make(map[string]model.Tensor, len(tensors))
	for _, t := range tensors {
		if _, ok := byName[t.Name]; ok {
			return nil, fmt.Errorf("%w: tensor %s occurs twice", ErrFormat, t.Name)
		}
		byName[t.Name] = t
	}
	for i, want := range w {
		t, ok := byName[want.Name]
		if !ok {
			return nil, fmt.Errorf("%w: tensor %s is absent", ErrFormat, want.Name)
		}
		if !slices.Equal(t.Shape, want.Shape) {
			return nil, fmt.Errorf("%w: tensor %s has shape %v, want %v", ErrFormat, t.Name, t.Shape, want.Shape)
		}
		w[i] = t
		delete(byName, want.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		return nil, fmt.Errorf("%w: tensor %s belongs to no part of the architecture", ErrFormat, name)
	}
	return w, nil
}

// WriteDirectory writes config.json and model.safetensors, for users and other tools. It
// creates dir if necessary and replaces these two files. Each file appears complete.
// config.json is written last, so a directory that has it is complete.
func WriteDirectory(dir string, a model.Architecture, w model.Weights) error {
	if err := a.Match(w); err != nil {
		return fmt.Errorf("write model %s: %w", dir, err)
	}
	text, err := writeConfig(a, LayoutVersion)
	if err != nil {
		return fmt.Errorf("write model %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write model %s: %w", dir, err)
	}
	// transformers requires the name of the framework whose layout the tensors have.
	if err := replace(filepath.Join(dir, model.WeightsFile), func(f *os.File) error {
		return WriteSafetensors(f, w, map[string]string{"format": "pt"})
	}); err != nil {
		return fmt.Errorf("write model %s: %w", dir, err)
	}
	if err := replace(filepath.Join(dir, model.ConfigFile), func(f *os.File) error {
		_, err := f.Write(text)
		return err
	}); err != nil {
		return fmt.Errorf("write model %s: %w", dir, err)
	}
	return nil
}

func replace(path string, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
