package model

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Tensor is a dense float32 array, row-major.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
}

// lmHead is the output layer of a policy whose embeddings are not tied.
const lmHead = "lm_head.weight"

// Weights are a model's tensors in the order of Architecture.Tensors.
type Weights []Tensor

// Tensors lists the names and shapes of a's tensors, in the one order that files and
// fingerprints use. Data is nil. For a model with Config the result is nil, since its
// tensors are not known here.
func (a Architecture) Tensors() Weights {
	if a.Config != "" {
		return nil
	}
	q, kv := a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	w := Weights{{Name: embedding, Shape: []int{a.VocabSize, a.HiddenSize}}}
	for l := range a.Layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		w = append(w,
			Tensor{Name: p + "input_layernorm.weight", Shape: []int{a.HiddenSize}},
			Tensor{Name: p + "self_attn.q_proj.weight", Shape: []int{q, a.HiddenSize}},
			Tensor{Name: p + "self_attn.k_proj.weight", Shape: []int{kv, a.HiddenSize}},
			Tensor{Name: p + "self_attn.v_proj.weight", Shape: []int{kv, a.HiddenSize}},
			Tensor{Name: p + "self_attn.o_proj.weight", Shape: []int{a.HiddenSize, q}},
			Tensor{Name: p + "post_attention_layernorm.weight", Shape: []int{a.HiddenSize}},
			Tensor{Name: p + "mlp.gate_proj.weight", Shape: []int{a.FeedForward, a.HiddenSize}},
			Tensor{Name: p + "mlp.up_proj.weight", Shape: []int{a.FeedForward, a.HiddenSize}},
			Tensor{Name: p + "mlp.down_proj.weight", Shape: []int{a.HiddenSize, a.FeedForward}},
		)
		if a.QKVBias {
			w = append(w,
				Tensor{Name: p + "self_attn.q_proj.bias", Shape: []int{q}},
				Tensor{Name: p + "self_attn.k_proj.bias", Shape: []int{kv}},
				Tensor{Name: p + "self_attn.v_proj.bias", Shape: []int{kv}})
		}
		if a.QKNorm {
			w = append(w,
				Tensor{Name: p + "self_attn.q_norm.weight", Shape: []int{a.HeadDim}},
				Tensor{Name: p + "self_attn.k_norm.weight", Shape: []int{a.HeadDim}})
		}
	}
	w = append(w, Tensor{Name: "model.norm.weight", Shape: []int{a.HiddenSize}})
	switch {
	case a.ValueHead:
		w = append(w, Tensor{Name: valueWeight, Shape: []int{1, a.HiddenSize}}, Tensor{Name: valueBias, Shape: []int{1}})
	case !a.Tied:
		w = append(w, Tensor{Name: lmHead, Shape: []int{a.VocabSize, a.HiddenSize}})
	}
	return w
}

// Size returns the number of elements of t's shape.
func (t Tensor) Size() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Parameters returns the number of trainable numbers of a.
func (a Architecture) Parameters() int {
	n := 0
	for _, t := range a.Tensors() {
		n += t.Size()
	}
	return n
}

// Zeros returns a's tensors, all zero: the moments of a fresh optimizer.
func (a Architecture) Zeros() Weights {
	w := a.Tensors()
	for i := range w {
		w[i].Data = make([]float32, w[i].Size())
	}
	return w
}

// Init draws a's weights from seed. Norms are 1 and biases 0. Linear layers are normal
// with deviation 1/sqrt(fan-in); those that write into the residual stream are smaller by
// sqrt(2·layers), as in GPT-2. The embedding has deviation 0.05. A value head is zero.
func (a Architecture) Init(seed uint64) Weights {
	w := a.Zeros()
	r := rand.New(rand.NewPCG(seed, 0x66756c67))
	for i := range w {
		t := &w[i]
		switch {
		case strings.HasSuffix(t.Name, "norm.weight"):
			for j := range t.Data {
				t.Data[j] = 1
			}
		case strings.HasSuffix(t.Name, ".bias"), t.Name == valueWeight:
		default:
			std := 1 / math.Sqrt(float64(t.Shape[1]))
			if strings.HasSuffix(t.Name, "o_proj.weight") || strings.HasSuffix(t.Name, "down_proj.weight") {
				std /= math.Sqrt(2 * float64(a.Layers))
			}
			if strings.HasSuffix(t.Name, "embed_tokens.weight") {
				std = 0.05
			}
			for j := range t.Data {
				t.Data[j] = float32(r.NormFloat64() * std)
			}
		}
	}
	return w
}

// Tensor returns the tensor of that name.
func (w Weights) Tensor(name string) (Tensor, error) {
	for _, t := range w {
		if t.Name == name {
			return t, nil
		}
	}
	return Tensor{}, fmt.Errorf("%w: tensor %s is absent", ErrArchitecture, name)
}

// Match reports where w differs from a's tensors in name, shape or length.
func (a Architecture) Match(w Weights) error { return match(a.Tensors(), w) }

func match(want, w Weights) error {
	if len(w) != len(want) {
		return fmt.Errorf("%w: %d tensors, want %d", ErrArchitecture, len(w), len(want))
	}
	for i, t := range want {
		if w[i].Name != t.Name || fmt.Sprint(w[i].Shape) != fmt.Sprint(t.Shape) || len(w[i].Data) != t.Size() {
			return fmt.Errorf("%w: tensor %d is %s %v with %d numbers, want %s %v", ErrArchitecture, i, w[i].Name, w[i].Shape, len(w[i].Data), t.Name, t.Shape)
		}
	}
	return nil
}

// Files holds the weights of a checkpoint of a model that only engine torch computes. No
// Go process reads the numbers.
type Files struct {
	// Weights holds the files by name: either the files of the whole model, as
	// transformers loads them from a directory, or AdapterFile with PEFT's names.
	Weights map[string]Content
	// Optimizer holds both moments of the trained tensors, whose names it prefixes with
	// "mean." and "variance.". Open is nil if Updates is 0.
	Optimizer Content
	// Release, if not nil, is called when the files will not be opened again.
	Release func()
}

// Content is the content of a file. If the content does not match Digest, the Read at its
// end returns an error other than io.EOF. Digest is empty while it is not known yet.
type Content struct {
	File
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// StoredFile returns the content of the file at path, whose digest is not known yet.
func StoredFile(path string) Content {
	return Content{Open: func(context.Context) (io.ReadCloser, error) { return os.Open(path) }}
}

// CopyTo writes the content into a file at path. The file appears complete or not at all.
func (c Content) CopyTo(ctx context.Context, path string) (err error) {
	content, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // only read
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	err = cmp.Or(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = f.Close()           // it may be closed
		_ = os.Remove(f.Name()) // the file is not needed
	}
	return err
}

// CopyFiles writes files into the directory dir, each under its name.
func CopyFiles(ctx context.Context, dir string, files map[string]Content) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := files[name].CopyTo(ctx, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// ModelType returns the model_type that Config names, and "" without Config.
func (a Architecture) ModelType() string {
	var c struct {
		ModelType string `json:"model_type"`
	}
	if a.Config == "" || json.Unmarshal([]byte(a.Config), &c) != nil {
		return ""
	}
	return c.ModelType
}

// CheckConfig returns an error that names the field if the config alone shows that an
// architecture with Config is impossible.
func (a Architecture) CheckConfig() error {
	if a.ModelType() == "" {
		return fmt.Errorf("%w: config names no model_type", ErrArchitecture)
	}
	for _, f := range []struct {
		name    string
		n, most int
	}{
		{"vocab_size", a.VocabSize, maxUnits}, {"hidden_size", a.HiddenSize, maxUnits},
		{"layers", a.Layers, maxLayers}, {"max_positions", a.MaxPositions, maxPositions},
	} {
		if f.n < 1 || f.n > f.most {
			return fmt.Errorf("%w: %s is %d, want 1 to %d", ErrArchitecture, f.name, f.n, f.most)
		}
	}
	if a.ValueHead {
		return fmt.Errorf("%w: value_head is true, which no model of type %q has here", ErrArchitecture, a.ModelType())
	}
	return a.Unused.check(a.VocabSize)
}

// CheckFiles returns an error if a checkpoint of an architecture with Config is
// impossible. It does not read the numbers in the files.
func (c Checkpoint) CheckFiles() error {
	if err := c.Architecture.CheckConfig(); err != nil {
		return err
	}
	if c.Weights != nil || c.Mean != nil || c.Variance != nil {
		return fmt.Errorf("%w: tensors together with config, whose numbers stay in files", ErrArchitecture)
	}
	if l := c.Adapter; l != nil {
		if err := l.LoRA.CheckFor(c.Architecture); err != nil {
			return err
		}
		if l.Base == nil || l.Base.Digest == "" || len(l.Base.Files) == 0 {
			return fmt.Errorf("%w: it has no base", ErrAdapter)
		}
		if l.Base.Architecture != c.Architecture {
			return fmt.Errorf("%w: its architecture is not that of base %s", ErrAdapter, l.Base.Digest)
		}
	}
	switch {
	case c.Updates < 0:
		return fmt.Errorf("%w: %d updates", ErrArchitecture, c.Updates)
	case c.Files == nil && (c.Adapter == nil || c.Updates > 0):
		return fmt.Errorf("%w: no files", ErrArchitecture)
	case c.Files == nil:
		return nil
	case len(c.Files.Weights) == 0:
		return fmt.Errorf("%w: no files with weights", ErrArchitecture)
	case c.Adapter != nil && c.Files.Weights[AdapterFile].Open == nil:
		return fmt.Errorf("%w: no %s", ErrAdapter, AdapterFile)
	case c.Updates > 0 && c.Files.Optimizer.Open == nil:
		return fmt.Errorf("%w: no %s after %d updates", ErrArchitecture, OptimizerFile, c.Updates)
	}
	return nil
}

// WithoutMoments returns c with a fresh optimizer.
func (c Checkpoint) WithoutMoments() Checkpoint {
	c.Updates, c.Mean, c.Variance = 0, nil, nil
	if c.Files != nil {
		files := *c.Files
		files.Optimizer = Content{}
		c.Files = &files
	}
	return c
}

// Release declares that the files of c are not needed any more.
func (c Checkpoint) Release() {
	if c.Files != nil && c.Files.Release != nil {
		c.Files.Release()
	}
}

// moduleName is a name that a linear layer may have.
var moduleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// CheckFor is like Check, but for a given architecture. If a has Config, a linear layer
// may have any name, and the rounding of the base is not checked.
func (l LoRA) CheckFor(a Architecture) error {
	if a.Config == "" {
		return l.Check()
	}
	if err := l.CheckTokens(a); err != nil {
		return err
	}
	known := l
	known.Targets = LoRATargets()
	if err := known.Check(); err != nil {
		return err
	}
	if l.Precision() != F32 {
		return fmt.Errorf("%w: base_precision is %s: the base of a model of type %q keeps the precision of its files: leave it out", ErrAdapter, l.BasePrecision, a.ModelType())
	}
	for i, t := range l.Targets {
		if !moduleName.MatchString(t) || slices.Contains(l.Targets[:i], t) {
			return fmt.Errorf("%w: target %q is not a name, or is given twice", ErrAdapter, t)
		}
	}
	if len(l.Targets) == 0 {
		return fmt.Errorf("%w: targets is empty", ErrAdapter)
	}
	return nil
}
