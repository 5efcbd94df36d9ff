package model

import (
	"errors"
	"fmt"
)

// Architecture describes a decoder-only transformer: RMSNorm, rotary position
// embedding, grouped-query attention and SwiGLU. It covers Llama 3, Qwen2,
// Qwen2.5 and Qwen3; model/hf reads it from their config.json.
type Architecture struct {
	VocabSize    int     `json:"vocab_size"`
	HiddenSize   int     `json:"hidden_size"`
	Layers       int     `json:"layers"`
	Heads        int     `json:"heads"`
	KVHeads      int     `json:"kv_heads"`
	HeadDim      int     `json:"head_dim"`
	FeedForward  int     `json:"feed_forward"`
	MaxPositions int     `json:"max_positions"` // most tokens of prompt and completion together
	RopeTheta    float64 `json:"rope_theta"`
	NormEpsilon  float64 `json:"norm_epsilon"`
	Tied         bool    `json:"tied_embeddings"` // the output layer is the embedding
	QKVBias      bool    `json:"qkv_bias,omitempty"`
	QKNorm       bool    `json:"qk_norm,omitempty"`
	// ValueHead marks a critic: one value for each position instead of logits, so
	// that Tied says nothing.
	ValueHead bool `json:"value_head,omitempty"`
}

// ErrArchitecture is wrapped by every error of Check.
var ErrArchitecture = errors.New("bad architecture")

// Tiny is the built-in model of the demo: about 10^5 parameters.
func Tiny(vocab int) Architecture {
	return Architecture{
		VocabSize: vocab, HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16,
		FeedForward: 128, MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
}

// Check reports what makes a impossible, naming the field.
func (a Architecture) Check() error {
	for _, f := range []struct {
		name string
		n    int
	}{
		{"vocab_size", a.VocabSize}, {"hidden_size", a.HiddenSize}, {"layers", a.Layers}, {"heads", a.Heads},
		{"kv_heads", a.KVHeads}, {"head_dim", a.HeadDim}, {"feed_forward", a.FeedForward}, {"max_positions", a.MaxPositions},
	} {
		if f.n < 1 {
			return fmt.Errorf("%w: %s is %d, want at least 1", ErrArchitecture, f.name, f.n)
		}
	}
	if a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("%w: heads (%d) is no multiple of kv_heads (%d)", ErrArchitecture, a.Heads, a.KVHeads)
	}
	if a.HeadDim%2 != 0 {
		return fmt.Errorf("%w: head_dim (%d) is odd, rotary embedding needs pairs", ErrArchitecture, a.HeadDim)
	}
	if a.RopeTheta <= 0 || a.NormEpsilon <= 0 {
		return fmt.Errorf("%w: rope_theta and norm_epsilon must be positive", ErrArchitecture)
	}
	return nil
}
