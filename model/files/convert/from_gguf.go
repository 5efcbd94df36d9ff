package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// batch is about how many bytes of a tensor are converted at a time.
const batch = 1 << 18

// FromGGUF imports the model of a GGUF file into dir, which must be empty.
func FromGGUF(source, dir string, o Options) (Result, error) {
	f, err := os.Open(source)
	if err != nil {
		return Result{}, err
	}
	r, err := fromGGUF(f, dir, o)
	if err = errors.Join(err, f.Close()); err != nil {
		return Result{}, fmt.Errorf("import %s: %w", source, err)
	}
	return r, nil
}

func fromGGUF(source *os.File, dir string, o Options) (Result, error) {
	stat, err := source.Stat()
	if err != nil {
		return Result{}, err
	}
	f, err := gguf.Open(source, stat.Size())
	if err != nil {
		return Result{}, err
	}
	a, err := readArchitecture(f)
	if err != nil {
		return Result{}, err
	}
	r := Result{Architecture: a, Source: map[string]int{}}
	_, r.Copied = f.Find(outputLayer)
	r.Copied = r.Copied && a.Tied
	tensors, err := matchTensors(f, a)
	if err != nil {
		return r, err
	}
	v, err := readVocabulary(f.Metadata, a)
	if err != nil {
		return r, err
	}
	if err := v.write(dir); err != nil {
		return r, err
	}
	r.Template = v.template != ""
	var layouts []hf.Layout
	for _, t := range a.Tensors() {
		kind := tensors[t.Name].Type
		r.Source[kind.String()]++
		layouts = append(layouts, hf.Layout{Name: t.Name, Shape: t.Shape, DType: o.dtype(kind)})
	}
	kind, err := f.Metadata.String(architectureKey)
	if err != nil {
		return r, err
	}
	r.Bytes, err = o.weights(dir, layouts, func(l hf.Layout, w io.Writer) error {
		dim := 0
		if interleaved(kind, l.Name) {
			dim = a.HeadDim
		}
		return copyRows(w, tensors[l.Name], dim, l.DType)
	})
	if err != nil {
		return r, err
	}
	text, err := hf.WriteConfig(a)
	if err != nil {
		return r, err
	}
	changes := v.config()
	changes["torch_dtype"], changes["transformers_version"] = dtypeName(layouts), hf.LayoutVersion
	config, err := configWith(text, changes)
	if err != nil {
		return r, err
	}
	return r, createJSON(filepath.Join(dir, model.ConfigFile), config)
}

// dtype returns the type in which a tensor of type t is written.
func (o Options) dtype(t gguf.Type) hf.DType {
	switch {
	case o.DType != "":
		return o.DType
	case t == gguf.F16:
		return hf.F16
	case t == gguf.BF16:
		return hf.BF16
	}
	return hf.F32
}

// matchTensors finds the tensors of the architecture, by our names, and refuses others.
func matchTensors(f *gguf.File, a model.Architecture) (map[string]gguf.Tensor, error) {
	found, known := map[string]gguf.Tensor{}, map[string]bool{ropeFactors: true, outputLayer: a.Tied}
	for _, want := range a.Tensors() {
		name := nameOf(want.Name)
		t, ok := f.Find(name)
		if !ok {
			return nil, fmt.Errorf("%w: tensor %s is absent", ErrFormat, name)
		}
		if !slices.Equal(t.Shape, want.Shape) {
			return nil, fmt.Errorf("%w: tensor %s has shape %v, the metadata makes it %v", ErrFormat, name, t.Shape, want.Shape)
		}
		found[want.Name], known[name] = t, true
	}
	for _, t := range f.Tensors {
		if !known[t.Name] {
			return nil, fmt.Errorf("%w: tensor %s belongs to no part of the architecture", ErrUnsupported, t.Name)
		}
	}
	return found, nil
}

// copyRows writes a tensor's rows as numbers of type to. If dim is not 0, it is the
// number of rows of a head, and the rows are put into our order.
func copyRows(w io.Writer, t gguf.Tensor, dim int, to hf.DType) error {
	step := max(1, batch/t.RowBytes())
	if dim > 0 {
		step = 1
	}
	whole, numbers := make([]byte, step*t.RowBytes()), make([]float32, step*t.Width())
	var encoded []byte
	for first := 0; first < t.Rows(); first += step {
		n := min(step, t.Rows()-first)
		from := first
		if dim > 0 {
			from = rowInGGUF(first, dim)
		}
		raw := whole[:n*t.RowBytes()]
		if err := t.ReadRows(raw, from); err != nil {
			return err
		}
		if t.Type.String() != string(to) {
			t.Decode(numbers, raw)
			var err error
			if encoded, err = to.AppendFloats(encoded[:0], numbers[:n*t.Width()]); err != nil {
				return err
			}
			raw = encoded
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

// The architectures of llama.cpp that are read and written. Mistral's models are "llama"
// there.
const (
	llama = "llama"
	qwen2 = "qwen2"
	qwen3 = "qwen3"
)

const (
	architectureKey = "general.architecture"
	embedding       = "token_embd.weight"
	outputLayer     = "output.weight"
	ropeFactors     = "rope_freqs.weight"
)

// The ends of keys whose beginning is the architecture's name.
const (
	blockCount      = ".block_count"
	contextLength   = ".context_length"
	embeddingLength = ".embedding_length"
	feedForward     = ".feed_forward_length"
	heads           = ".attention.head_count"
	kvHeads         = ".attention.head_count_kv"
	keyLength       = ".attention.key_length"
	valueLength     = ".attention.value_length"
	normEpsilon     = ".attention.layer_norm_rms_epsilon"
	ropeBase        = ".rope.freq_base"
	ropeDimensions  = ".rope.dimension_count"
	vocabSize       = ".vocab_size"
)

// readArchitecture reads the architecture of a file's model.
func readArchitecture(f *gguf.File) (model.Architecture, error) {
	kind, err := f.Metadata.String(architectureKey)
	if err != nil {
		return model.Architecture{}, err
	}
	if err := whole(f.Metadata); err != nil {
		return model.Architecture{}, err
	}
	if !slices.Contains([]string{llama, qwen2, qwen3}, kind) {
		return model.Architecture{}, fmt.Errorf("%w: %s is %q, which is not one of %s, %s and %s", ErrUnsupported, architectureKey, kind, llama, qwen2, qwen3)
	}
	k := keys{m: f.Metadata, kind: kind}
	if err := k.supported(); err != nil {
		return model.Architecture{}, err
	}
	table, ok := f.Find(embedding)
	if !ok || len(table.Shape) != 2 {
		return model.Architecture{}, fmt.Errorf("%w: tensor %s is absent or no matrix", ErrFormat, embedding)
	}
	untied, err := isUntied(f, table)
	if err != nil {
		return model.Architecture{}, err
	}
	a := model.Architecture{
		VocabSize: table.Rows(), HiddenSize: k.int(embeddingLength, 0), Layers: k.int(blockCount, 0),
		Heads: k.int(heads, 0), FeedForward: k.int(feedForward, 0), MaxPositions: k.int(contextLength, 0),
		RopeTheta: k.float(ropeBase, 10000), NormEpsilon: k.float(normEpsilon, 0),
		Tied: !untied, QKVBias: kind == qwen2, QKNorm: kind == qwen3,
	}
	a.KVHeads = k.int(kvHeads, a.Heads)
	a.HeadDim = k.int(keyLength, a.HiddenSize/max(a.Heads, 1))
	if n := k.int(valueLength, a.HeadDim); n != a.HeadDim && k.err == nil {
		return a, fmt.Errorf("%w: %s is %d, keys have %d", ErrUnsupported, kind+valueLength, n, a.HeadDim)
	}
	if n := k.int(ropeDimensions, a.HeadDim); n != a.HeadDim && k.err == nil {
		return a, fmt.Errorf("%w: %s is %d, a head has %d: partial rotary embedding", ErrUnsupported, kind+ropeDimensions, n, a.HeadDim)
	}
	if k.err != nil {
		return a, k.err
	}
	if err := a.Check(); err != nil {
		return a, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	a.RopeScaling, err = readScaling(f, a)
	return a, err
}

// isUntied reports whether a file has an output layer that is no copy of the embedding.
func isUntied(f *gguf.File, table gguf.Tensor) (bool, error) {
	output, ok := f.Find(outputLayer)
	if !ok || output.Type != table.Type || !slices.Equal(output.Shape, table.Shape) {
		return ok, nil
	}
	step := max(1, batch/table.RowBytes())
	a, b := make([]byte, step*table.RowBytes()), make([]byte, step*table.RowBytes())
	for first := 0; first < table.Rows(); first += step {
		n := min(step, table.Rows()-first) * table.RowBytes()
		if err := errors.Join(table.ReadRows(a[:n], first), output.ReadRows(b[:n], first)); err != nil {
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return true, nil
		}
	}
	return false, nil
}

// The keys that tell that a file is no whole model.
const (
	kindKey  = "general.type"
	partsKey = "split.count"
)

// whole returns an error that names the way on if a file is one of several parts, or no
// model.
func whole(m gguf.Metadata) error {
	parts, err := m.Int(partsKey, 1)
	if err != nil {
		return err
	}
	if parts > 1 {
		return fmt.Errorf("%w: %s is %d: the model is split into so many files: join them with llama.cpp's llama-gguf-split --merge FIRST-PART OUTPUT, and import the result", ErrUnsupported, partsKey, parts)
	}
	kind, err := m.String(kindKey)
	if err != nil {
		return err
	}
	if kind == "adapter" {
		return fmt.Errorf("%w: %s is %q: import the whole model, and give the adapter in PEFT's files as model.lora.adapter; llama.cpp's llama-export-lora makes a whole model of both", ErrUnsupported, kindKey, kind)
	}
	if kind != "" && kind != "model" {
		return fmt.Errorf("%w: %s is %q, want a model", ErrUnsupported, kindKey, kind)
	}
	return nil
}

// keys reads the settings of an architecture and keeps the first error.
type keys struct {
	m    gguf.Metadata
	kind string
	err  error
}

func (k *keys) int(end string, otherwise int) int {
	n, err := k.m.Int(k.kind+end, otherwise)
	if k.err == nil {
		k.err = err
	}
	return n
}

func (k *keys) float(end string, otherwise float64) float64 {
	x, err := k.m.Float(k.kind+end, otherwise)
	if k.err == nil {
		k.err = err
	}
	return x
}

// supported returns an error that names the key if the model would be computed wrongly.
func (k *keys) supported() error {
	scaling, err := k.m.String(k.kind + ".rope.scaling.type")
	if err != nil {
		return err
	}
	if scaling != "" && scaling != "none" {
		return fmt.Errorf("%w: %s is %q", ErrUnsupported, k.kind+".rope.scaling.type", scaling)
	}
	// Without a type, llama.cpp takes a factor as that of linear scaling.
	for _, end := range []string{".rope.scaling.factor", ".rope.scale_linear"} {
		if x := k.float(end, 1); scaling == "" && x != 1 && x != 0 && k.err == nil {
			return fmt.Errorf("%w: %s is %v, which without %s is linear scaling", ErrUnsupported, k.kind+end, x, k.kind+".rope.scaling.type")
		}
	}
	if n := k.int(".expert_count", 0); n != 0 {
		return fmt.Errorf("%w: %s is %d: a mixture of experts", ErrUnsupported, k.kind+".expert_count", n)
	}
	positions := k.int(contextLength, 0)
	if n := k.int(".attention.sliding_window", positions); n != 0 && n < positions {
		return fmt.Errorf("%w: %s is %d of %d positions", ErrUnsupported, k.kind+".attention.sliding_window", n, positions)
	}
	for _, end := range []string{".attention.scale", ".logit_scale", ".residual_scale", ".embedding_scale"} {
		if x := k.float(end, 1); x != 1 && x != 0 {
			return fmt.Errorf("%w: %s is %v", ErrUnsupported, k.kind+end, x)
		}
	}
	return k.err
}

// nameOf returns llama.cpp's name of one of our tensors.
func nameOf(name string) string {
	switch name {
	case "model.embed_tokens.weight":
		return embedding
	case "model.norm.weight":
		return "output_norm.weight"
	case "lm_head.weight":
		return outputLayer
	}
	part := strings.SplitN(strings.TrimPrefix(name, "model.layers."), ".", 2)
	end := strings.LastIndexByte(part[1], '.')
	return "blk." + part[0] + "." + partNames()[part[1][:end]] + part[1][end:]
}

// partNames returns llama.cpp's names of the parts of a layer.
func partNames() map[string]string {
	return map[string]string{
		"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
		"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
		"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
		"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
	}
}

// interleaved reports whether llama.cpp keeps the rows of a tensor in another order,
// which its rotary embedding needs. In a llama's queries and keys it rotates neighbouring
// rows, while Hugging Face's files pair row i of a head with row i + dim/2.
func interleaved(kind, name string) bool {
	return kind == llama && (strings.Contains(name, ".self_attn.q_proj.") || strings.Contains(name, ".self_attn.k_proj."))
}

// rowInGGUF returns the position of row i in llama.cpp's file, for an interleaved tensor
// whose heads have dim rows.
func rowInGGUF(i, dim int) int {
	head, j := i/dim*dim, i%dim
	return head + j%(dim/2)*2 + j/(dim/2)
}

// rowInOurs inverts rowInGGUF.
func rowInOurs(i, dim int) int {
	head, j := i/dim*dim, i%dim
	return head + j%2*(dim/2) + j/2
}

// A GGUF file stores the scaling of Llama 3.1's rotary embedding not as settings, but as
// the resulting divisors of the frequencies. All models that were published with it have
// these two factors, and their number of original positions is a power of two.
const (
	lowFrequencyFactor  = 1
	highFrequencyFactor = 4
)

// ropeDivisors returns the numbers by which the scaling divides each frequency.
func ropeDivisors(a model.Architecture) []float32 {
	divisors := make([]float32, a.HeadDim/2)
	for i := range divisors {
		f := math.Pow(a.RopeTheta, -2*float64(i)/float64(a.HeadDim))
		divisors[i] = float32(f / a.RopeScaling.Frequency(f))
	}
	return divisors
}

// readScaling finds the scaling that makes the divisors of a file, if it has some.
func readScaling(f *gguf.File, a model.Architecture) (model.RopeScaling, error) {
	t, ok := f.Find(ropeFactors)
	if !ok {
		return model.RopeScaling{}, nil
	}
	if len(t.Shape) != 1 || t.Width() != a.HeadDim/2 {
		return model.RopeScaling{}, fmt.Errorf("%w: tensor %s has shape %v, want [%d]", ErrFormat, ropeFactors, t.Shape, a.HeadDim/2)
	}
	raw, want := make([]byte, t.RowBytes()), make([]float32, t.Width())
	if err := t.ReadRows(raw, 0); err != nil {
		return model.RopeScaling{}, err
	}
	t.Decode(want, raw)
	factor := float64(want[len(want)-1])
	if factor == 1 {
		return model.RopeScaling{}, nil
	}
	for positions := 1 << 8; positions <= 1<<20; positions *= 2 {
		a.RopeScaling = model.RopeScaling{
			Factor: factor, LowFrequencyFactor: lowFrequencyFactor,
			HighFrequencyFactor: highFrequencyFactor, OriginalPositions: positions,
		}
		if a.Check() == nil && near(want, ropeDivisors(a)) {
			return a.RopeScaling, nil
		}
	}
	return model.RopeScaling{}, fmt.Errorf("%w: tensor %s is not the scaling of Llama 3", ErrUnsupported, ropeFactors)
}

func near(a, b []float32) bool {
	for i := range a {
		if !(math.Abs(float64(a[i]-b[i])) <= 1e-4*math.Abs(float64(b[i]))) {
			return false
		}
	}
	return true
}
