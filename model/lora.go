package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// LoRA holds the numbers of a low-rank adapter (Hu et al., 2021, arXiv:2106.09685). An
// adapted linear layer W computes y = Wx + (Alpha/Rank)·B(Ax), where A is [Rank, in] and
// B is [out, Rank]. W is frozen; A and B are trained.
type LoRA struct {
	Rank  int     `json:"rank"`
	Alpha float64 `json:"alpha"`
	// Targets names the linear layers that are adapted in every layer of the model, with
	// names from LoRATargets. Their order has no meaning.
	Targets []string `json:"targets"`
	// BasePrecision is how the base is rounded and held in memory; empty means F32. The
	// stored base is already rounded, so its digest depends on BasePrecision.
	BasePrecision Precision `json:"base_precision,omitempty"`
	// Tokens lists the tokens whose rows of the embedding are trained in addition, and
	// whose rows of the output layer if that is a separate matrix. The adapter's tensors
	// hold these rows in this order.
	Tokens []int32 `json:"trainable_tokens,omitempty"`
}

// Precision returns BasePrecision, or F32 if it is empty.
func (l LoRA) Precision() Precision { return cmp.Or(l.BasePrecision, F32) }

// Adapter is the part that a Checkpoint trains instead of its base.
type Adapter struct {
	LoRA
	Base *Base
}

// Base is a frozen policy that several adapters share: those of all versions of a run, of
// its critic and of its reference. It never changes.
type Base struct {
	// Digest names the file with its weights: equal digests are equal weights, so that
	// an engine needs one copy of them.
	Digest       string
	Size         int64 // of that file, in bytes
	Architecture Architecture
	// Each calls use for each tensor of the weights, in any order, and returns its error.
	// A caller needs memory for one tensor at a time. An engine that holds a copy does
	// not call Each.
	Each func(use func(Tensor) error) error
	// Beside, unless it is nil, returns the path of a file with the given name in an
	// existing directory, where an engine may keep the weights in its own layout. These
	// files are removed together with the base.
	Beside func(name string) string
	// Files replaces Each if the architecture has Config. It holds the files with the
	// weights, by their names in the model's directory.
	Files map[string]Content
}

// Read returns all weights of the base.
func (b *Base) Read() (Weights, error) {
	w, place := b.Architecture.Tensors(), map[string]int{}
	for i, t := range w {
		place[t.Name] = i
	}
	err := b.Each(func(t Tensor) error {
		i, ok := place[t.Name]
		if !ok {
			return fmt.Errorf("%w: tensor %s belongs to no part of it", ErrArchitecture, t.Name)
		}
		w[i] = t
		return nil
	})
	if err != nil {
		return nil, err
	}
	return w, b.Architecture.Match(w)
}

// EachOf returns a function for Base.Each, where read returns all weights at the same
// time.
func EachOf(read func() (Weights, error)) func(use func(Tensor) error) error {
	return func(use func(Tensor) error) error {
		w, err := read()
		if err != nil {
			return err
		}
		for _, t := range w {
			if err := use(t); err != nil {
				return err
			}
		}
		return nil
	}
}

// ErrAdapter is wrapped by every error of LoRA.Check, Checkpoint.Check and ReadPEFT.
var ErrAdapter = errors.New("bad adapter")

// The names of an adapter's tensors are the name of the linear layer and one of these
// suffixes.
const (
	loraA = ".lora_A.weight" // [rank, in]
	loraB = ".lora_B.weight" // [out, rank]
)

// LoRATargets returns the names of the linear layers that can be adapted: all but the
// embedding and the output layer.
func LoRATargets() []string {
	return []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
}

// Check returns an error that names the field if l is impossible.
func (l LoRA) Check() error {
	switch {
	case !bounds.LoRARank().Hold(float64(l.Rank)):
		return fmt.Errorf("%w: rank is %d, want %s", ErrAdapter, l.Rank, bounds.LoRARank())
	case !bounds.LoRAAlpha().Hold(l.Alpha):
		return fmt.Errorf("%w: alpha is %v, want %s", ErrAdapter, l.Alpha, bounds.LoRAAlpha())
	case len(l.Targets) == 0:
		return fmt.Errorf("%w: targets is empty", ErrAdapter)
	}
	for i, t := range l.Targets {
		if !slices.Contains(LoRATargets(), t) {
			return fmt.Errorf("%w: target %q: there are %s", ErrAdapter, t, strings.Join(LoRATargets(), ", "))
		}
		if slices.Contains(l.Targets[:i], t) {
			return fmt.Errorf("%w: target %q is given twice", ErrAdapter, t)
		}
	}
	return l.checkTokens()
}

// Equal reports whether two adapters of the same base compute the same, if their tensors
// are equal.
func (l LoRA) Equal(o LoRA) bool {
	return l.Rank == o.Rank && l.Alpha == o.Alpha && slices.Equal(l.Tokens, o.Tokens) &&
		slices.Equal(slices.Sorted(slices.Values(l.Targets)), slices.Sorted(slices.Values(o.Targets)))
}

// Scale returns the factor Alpha/Rank of the adapter's product.
func (l LoRA) Scale() float32 { return float32(l.Alpha / float64(l.Rank)) }

// AdapterTensors lists the names and shapes of the tensors that l trains in a, in the one
// order that files use: A and B of each linear layer, and the trained rows of tokens, in
// the order of Tensors. The value head of a critic is trained completely, without an
// adapter. Data is nil.
func (a Architecture) AdapterTensors(l LoRA) Weights {
	var w Weights
	for _, t := range a.Tensors() {
		if t.Name == valueWeight || t.Name == valueBias {
			w = append(w, t)
			continue
		}
		w = append(w, l.tokenTensors(t)...)
		module, ok := strings.CutSuffix(t.Name, ".weight")
		if ok && slices.Contains(l.Targets, module[strings.LastIndexByte(module, '.')+1:]) {
			w = append(w,
				Tensor{Name: module + loraA, Shape: []int{l.Rank, t.Shape[1]}},
				Tensor{Name: module + loraB, Shape: []int{t.Shape[0], l.Rank}})
		}
	}
	return w
}

// InitAdapter draws the tensors of a new adapter from seed, as PEFT does: A uniform
// within 1/√in (He et al., 2015, with a = √5), and B zero, so that the adapter does not
// change the model yet. A value head is zero, and so are the rows of l.Tokens, which
// Adapter.Init reads from the base.
func (a Architecture) InitAdapter(l LoRA, seed uint64) Weights {
	w := a.AdapterTensors(l)
	r := rand.New(rand.NewPCG(seed, 0x6c6f7261))
	for i := range w {
		t := &w[i]
		t.Data = make([]float32, t.Size())
		if strings.HasSuffix(t.Name, loraA) {
			bound := 1 / math.Sqrt(float64(t.Shape[1]))
			for j := range t.Data {
				t.Data[j] = float32((2*r.Float64() - 1) * bound)
			}
		}
	}
	return w
}

// Tensors lists the names and shapes of the trained tensors of c: all tensors of the
// architecture, or those of its adapter. Data is nil.
func (c Checkpoint) Tensors() Weights {
	if c.Adapter == nil {
		return c.Architecture.Tensors()
	}
	return c.Architecture.AdapterTensors(c.Adapter.LoRA)
}

// Match reports where w differs from Tensors in name, shape or length.
func (c Checkpoint) Match(w Weights) error { return match(c.Tensors(), w) }

// Check returns an error if c is impossible: its architecture is, its adapter does not
// fit its base, or its weights differ from Tensors in name or shape.
func (c Checkpoint) Check() error {
	if err := c.Architecture.Check(); err != nil {
		return err
	}
	if c.Adapter != nil {
		if err := c.Adapter.check(c.Architecture); err != nil {
			return err
		}
	}
	return c.Match(c.Weights)
}

func (a Adapter) check(of Architecture) error {
	if err := a.LoRA.Check(); err != nil {
		return err
	}
	if a.Base == nil || a.Base.Digest == "" || a.Base.Each == nil {
		return fmt.Errorf("%w: it has no base", ErrAdapter)
	}
	if err := a.Precision().Check(of); err != nil {
		return err
	}
	if err := a.CheckTokens(of); err != nil {
		return err
	}
	of.ValueHead = false
	if of != a.Base.Architecture {
		return fmt.Errorf("%w: its architecture is not that of base %s: %+v, not %+v", ErrAdapter, a.Base.Digest, of, a.Base.Architecture)
	}
	return nil
}

// Merged returns all weights of a policy: c.Weights, or the weights of its base with W +
// (Alpha/Rank)·BA instead of each adapted W, rounded once, and with the trained rows of
// tokens. The merged weights compute slightly different numbers than base and adapter do
// separately.
func (c Checkpoint) Merged() (Weights, error) {
	if c.Adapter == nil {
		return c.Weights, nil
	}
	if err := errors.Join(c.Architecture.CheckPolicy(), c.Check()); err != nil {
		return nil, err
	}
	base, err := c.Adapter.Base.Read()
	if err != nil {
		return nil, fmt.Errorf("read the base of an adapter: %w", err)
	}
	if err := c.Architecture.Match(base); err != nil {
		return nil, fmt.Errorf("base of an adapter: %w", err)
	}
	of, merged := map[string]Tensor{}, slices.Clone(base)
	for _, t := range c.Weights {
		of[t.Name] = t
	}
	for i, t := range merged {
		module := strings.TrimSuffix(t.Name, ".weight")
		if a, ok := of[module+loraA]; ok {
			merged[i].Data = mergeLinear(t, a, of[module+loraB], c.Adapter.Alpha/float64(c.Adapter.Rank))
		}
		for _, own := range c.Adapter.tokenTensors(t) {
			merged[i].Data = mergeTokens(t, of[own.Name], c.Adapter.Tokens)
		}
	}
	return merged, nil
}

// mergeLinear computes w + scale·ba in double precision.
func mergeLinear(w, a, b Tensor, scale float64) []float32 {
	in, rank := w.Shape[1], a.Shape[0]
	out, row := make([]float32, len(w.Data)), make([]float64, in)
	for i := range w.Shape[0] {
		clear(row)
		for k, x := range b.Data[i*rank : (i+1)*rank] {
			for j, y := range a.Data[k*in : (k+1)*in] {
				row[j] += float64(x) * float64(y)
			}
		}
		for j, x := range w.Data[i*in : (i+1)*in] {
			out[i*in+j] = float32(float64(x) + scale*row[j])
		}
	}
	return out
}

// The tensors with the rows of LoRA.Tokens, under the names that PEFT gives them. PEFT
// calls them deltas, but they are the rows themselves, which replace those of the base.
const (
	inputTokens  = "model.embed_tokens.token_adapter.trainable_tokens_delta" // [tokens, hidden_size]
	outputTokens = "lm_head.token_adapter.trainable_tokens_delta"            // likewise, unless the embedding is also the output layer
)

// embedding is the tensor with the rows of all tokens.
const embedding = "model.embed_tokens.weight"

// checkTokens returns an error if l.Tokens are impossible in every model.
func (l LoRA) checkTokens() error {
	if n := len(l.Tokens); n > bounds.MaxTrainedTokens {
		return fmt.Errorf("%w: trainable_tokens has %d tokens, want at most %d", ErrAdapter, n, bounds.MaxTrainedTokens)
	}
	known := map[int32]bool{}
	for _, id := range l.Tokens {
		if id < 0 {
			return fmt.Errorf("%w: trainable_tokens has %d, want ids of tokens", ErrAdapter, id)
		}
		if known[id] {
			return fmt.Errorf("%w: trainable_tokens has %d twice", ErrAdapter, id)
		}
		known[id] = true
	}
	return nil
}

// CheckTokens returns an error if a model of architecture a has no row, or no token, for
// one of l.Tokens.
func (l LoRA) CheckTokens(a Architecture) error {
	if a.Config != "" && len(l.Tokens) > 0 {
		return fmt.Errorf("%w: trainable_tokens: rows of tokens are not trained in a model of type %q: leave them out, or take a model of type llama, mistral, qwen2 or qwen3", ErrAdapter, a.ModelType())
	}
	for _, id := range l.Tokens {
		if int(id) >= a.VocabSize {
			return fmt.Errorf("%w: trainable_tokens has %d, but the vocabulary has %d rows", ErrAdapter, id, a.VocabSize)
		}
		if a.Unused.Has(id) {
			return fmt.Errorf("%w: trainable_tokens has %d, an id without a token, which is never sampled", ErrAdapter, id)
		}
	}
	return nil
}

// tokenTensors returns the tensor with the trained rows of t, the embedding or the output
// layer, or nothing for another tensor and without trained rows.
func (l LoRA) tokenTensors(t Tensor) Weights {
	name := map[string]string{embedding: inputTokens, lmHead: outputTokens}[t.Name]
	if name == "" || len(l.Tokens) == 0 {
		return nil
	}
	return Weights{{Name: name, Shape: []int{len(l.Tokens), t.Shape[1]}}}
}

// Init returns the tensors of a new adapter over a model of architecture of, which change
// nothing yet: those of InitAdapter, with the base's own rows of a.Tokens.
func (a Adapter) Init(of Architecture, seed uint64) (Weights, error) {
	w := of.InitAdapter(a.LoRA, seed)
	if len(a.Tokens) == 0 {
		return w, nil
	}
	err := a.Base.Each(func(t Tensor) error {
		for _, own := range a.tokenTensors(t) {
			i := slices.IndexFunc(w, func(o Tensor) bool { return o.Name == own.Name })
			if i < 0 {
				continue // a critic has no rows of an output layer
			}
			width := t.Shape[1]
			for row, id := range a.Tokens {
				copy(w[i].Data[row*width:(row+1)*width], t.Data[int(id)*width:])
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read rows of the base: %w", err)
	}
	return w, nil
}

// mergeTokens returns t with the trained rows in own instead of its own.
func mergeTokens(t, own Tensor, tokens []int32) []float32 {
	out, width := slices.Clone(t.Data), t.Shape[1]
	for row, id := range tokens {
		copy(out[int(id)*width:(int(id)+1)*width], own.Data[row*width:])
	}
	return out
}
