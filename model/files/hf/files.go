package hf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
)

// Files is a model directory of a kind that only engine torch computes. This package does
// not read its weights.
type Files struct {
	Architecture model.Architecture
	// Files holds the files with the weights, by name, and their index if there are
	// several.
	Files map[string]model.Content
	// Bytes is the size of the weights on disk.
	Bytes int64
	// Layouts are the tensors of all files.
	Layouts []Layout
}

// Parameters returns how many numbers the files hold.
func (f *Files) Parameters() (n int64) {
	for _, l := range f.Layouts {
		size, _ := l.size()
		n += int64(size)
	}
	return n
}

// AdapterParameters returns an upper bound of how many numbers an adapter with these
// targets has. Without targets, it counts all matrices but embeddings and output layer.
func (f *Files) AdapterParameters(rank int, targets []string) (n int64) {
	for _, l := range f.Layouts {
		module, ok := strings.CutSuffix(l.Name, ".weight")
		name := module[strings.LastIndexByte(module, '.')+1:]
		if !ok || len(l.Shape) != 2 || strings.Contains(name, "embed") || name == "lm_head" {
			continue
		}
		if targets == nil || slices.Contains(targets, name) {
			n += int64(rank) * int64(l.Shape[0]+l.Shape[1])
		}
	}
	return n
}

// OpenFiles finds the files of a model whose config.json ReadConfig does not support. It
// returns nil if the other engines support the model, or if dir has no model;
// OpenDirectory then gives the reason. It checks the headers of the files and does not
// read numbers.
func OpenFiles(dir string) (*Files, error) {
	text, err := textfile.Read(filepath.Join(dir, model.ConfigFile))
	if err != nil {
		return nil, nil //nolint:nilerr // OpenDirectory reports it
	}
	if _, err := ReadConfig(text); !errors.Is(err, ErrUnsupported) {
		return nil, nil
	}
	f := &Files{Files: map[string]model.Content{}}
	if f.Architecture, err = ReadCausalConfig(text); err != nil {
		return nil, err
	}
	names, err := shards(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		file, header, err := openFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, absent(dir, err)
		}
		if err != nil {
			return nil, err
		}
		info, err := file.Stat()
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		f.Files[name] = model.StoredFile(filepath.Join(dir, name))
		f.Bytes += info.Size()
		for _, e := range header.entries {
			f.Layouts = append(f.Layouts, e.layout())
		}
	}
	if len(names) > 1 || names[0] != model.WeightsFile {
		f.Files[indexFile] = model.StoredFile(filepath.Join(dir, indexFile))
	}
	return f, nil
}

// ReadCausalConfig reads from a config.json what can be known about a causal model of any
// type. It refuses a model that would run its own code, or that needs more than its
// weights.
func ReadCausalConfig(text []byte) (model.Architecture, error) {
	refuse := func(format string, args ...any) (model.Architecture, error) {
		return model.Architecture{}, fmt.Errorf("%w: config.json: %s", ErrUnsupported, fmt.Sprintf(format, args...))
	}
	text = model.StandardJSON(text)
	var fields map[string]json.RawMessage
	if err := model.DecodeJSON(text, &fields); err != nil {
		return model.Architecture{}, fmt.Errorf("%w: config.json: %w", ErrFormat, err)
	}
	has := func(name string) bool { v := string(fields[name]); return v != "" && v != "null" }
	switch {
	case has("auto_map"):
		return refuse("auto_map names the model's own Python code, which is never run: take a model that transformers itself has")
	case has("quantization_config"):
		return refuse("quantization_config is set: take the model that was not quantized")
	case !has("model_type"):
		return refuse("model_type is absent")
	}
	a := model.Architecture{Config: string(text)}
	for _, want := range []struct {
		to    *int
		names []string
	}{
		{&a.VocabSize, []string{"vocab_size"}},
		{&a.HiddenSize, []string{"hidden_size", "n_embd", "d_model"}},
		{&a.Layers, []string{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}},
		{&a.MaxPositions, []string{"max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length"}},
	} {
		for _, name := range want.names {
			if *want.to == 0 && has(name) {
				if err := json.Unmarshal(fields[name], want.to); err != nil {
					return refuse("%s is %s, want a whole number", name, fields[name])
				}
			}
		}
		if *want.to == 0 {
			return refuse("%s is absent: add it as the model's documentation says", strings.Join(want.names, " or "))
		}
	}
	if err := a.CheckConfig(); err != nil {
		return model.Architecture{}, fmt.Errorf("%w: config.json: %w", ErrFormat, err)
	}
	return a, nil
}

// WriteFiles writes a model whose weights lie in files: either config.json and the whole
// model, or PEFT's files of an adapter of the base with the given name. config.json or
// adapter_config.json is written last, so a directory that has it is complete.
func WriteFiles(ctx context.Context, dir string, c model.Checkpoint, base string) error {
	err := c.CheckFiles()
	if err == nil && c.Files == nil {
		err = fmt.Errorf("%w: a new adapter has no files", model.ErrAdapter)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = model.CopyFiles(ctx, dir, c.Files.Weights)
	}
	name, text := model.ConfigFile, []byte(c.Architecture.Config)
	if err == nil && c.Adapter != nil {
		name = model.AdapterConfigFile
		text, err = WritePEFTConfig(c, base)
	}
	if err == nil {
		err = replace(filepath.Join(dir, name), func(f *os.File) error {
			_, err := f.Write(text)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("write model %s: %w", dir, err)
	}
	return nil
}
