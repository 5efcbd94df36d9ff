package hf

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/half"
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

// Layout describes a tensor of a file without its numbers.
type Layout struct {
	Name  string
	DType DType
	Shape []int
}

func (l Layout) size() (n int, ok bool) {
	n = 1
	for _, d := range l.Shape {
		if d < 0 || d > maxDimension || (d > 0 && n > math.MaxInt/d) {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// Bytes returns the number of bytes that the tensor takes.
func (l Layout) Bytes() int64 {
	n, _ := l.size()
	return int64(n) * int64(l.DType.width())
}

// WriteTensors writes a safetensors file whose tensors need not be in memory together. It
// calls write once for each layout. Wider numbers come first, so that all data is
// aligned; otherwise the order of layouts is kept. write has to write exactly the bytes
// of its tensor.
func WriteTensors(w io.Writer, layouts []Layout, metadata map[string]string, write func(l Layout, w io.Writer) error) error {
	layouts = slices.Clone(layouts)
	slices.SortStableFunc(layouts, func(a, b Layout) int { return b.DType.width() - a.DType.width() })
	text, err := encodeHeader(layouts, metadata)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, chunk)
	counted := &counter{w: out}
	if _, err := out.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, l := range layouts {
		counted.n = 0
		if err := write(l, counted); err != nil {
			return fmt.Errorf("write tensor %s: %w", l.Name, err)
		}
		if counted.n != l.Bytes() {
			return fmt.Errorf("%w: tensor %s got %d bytes, want %d", ErrFormat, l.Name, counted.n, l.Bytes())
		}
	}
	return out.Flush()
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// AppendFloats appends numbers as d, one of F32, F16 and BF16. A number that F16 cannot
// hold is an error.
func (d DType) AppendFloats(b []byte, numbers []float32) ([]byte, error) {
	switch d {
	case F32:
		for _, x := range numbers {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	case F16:
		return half.AppendF16(b, numbers)
	case BF16:
		return half.AppendBF16(b, numbers), nil
	default:
		return nil, fmt.Errorf("%s is not written", d)
	}
	return b, nil
}
