package model

import (
	"fmt"
	"math"
	"math/rand/v2"
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
