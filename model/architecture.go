package model

import (
	"errors"
	"fmt"
)

// Architecture describes a decoder-only transformer: RMSNorm, rotary position
// embedding, grouped-query attention and SwiGLU. It covers Llama 3 to 3.2, SmolLM2,
// Mistral without a sliding window, Qwen2, Qwen2.5 and Qwen3; model/files/hf reads it from
// their config.json.
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
	// RopeScaling changes the frequencies that RopeTheta gives; the zero value does not.
	RopeScaling RopeScaling `json:"rope_scaling,omitzero"`
	// ValueHead marks a critic, which has one value for each position instead of logits.
	// Tied then has no meaning.
	ValueHead bool `json:"value_head,omitempty"`
	// Unused lists the rows of the vocabulary that no token has, such as those that pad it
	// to a round number. They have probability 0 in sampling and training. It is empty if
	// the codec is not the model's own.
	Unused TokenRanges `json:"unused_tokens,omitempty"`
	// Config is the text of config.json of a model of another kind, which only engine
	// torch computes. It is empty for the kinds above. If it is set, VocabSize,
	// HiddenSize, Layers and MaxPositions repeat what it says, and the other fields have
	// no meaning.
	Config string `json:"config,omitempty"`
}

// Bounds far above any published model. They keep the number of parameters and the
// size of tables within 64 bits.
const (
	maxUnits     = 1 << 24 // for each dimension of a tensor
	maxLayers    = 1 << 12
	maxPositions = 1 << 28
)

// ErrArchitecture is wrapped by every error of Check.
var ErrArchitecture = errors.New("bad architecture")

// Tiny is the built-in model of the demo: about 10^5 parameters.
func Tiny(vocab int) Architecture {
	return Architecture{
		VocabSize: vocab, HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16,
		FeedForward: 128, MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
}

// Check returns an error that names the field if the architecture is impossible.
func (a Architecture) Check() error {
	if a.Config != "" {
		return fmt.Errorf("%w: model_type %q is not llama, mistral, qwen2 or qwen3: only engine torch computes it", ErrArchitecture, a.ModelType())
	}
	for _, f := range []struct {
		name    string
		n, most int
	}{
		{"vocab_size", a.VocabSize, maxUnits}, {"hidden_size", a.HiddenSize, maxUnits}, {"layers", a.Layers, maxLayers},
		{"heads", a.Heads, maxUnits}, {"kv_heads", a.KVHeads, maxUnits}, {"head_dim", a.HeadDim, maxUnits},
		{"feed_forward", a.FeedForward, maxUnits}, {"max_positions", a.MaxPositions, maxPositions},
	} {
		if f.n < 1 {
			return fmt.Errorf("%w: %s is %d, want at least 1", ErrArchitecture, f.name, f.n)
		}
		if f.n > f.most {
			return fmt.Errorf("%w: %s is %d, want at most %d", ErrArchitecture, f.name, f.n, f.most)
		}
	}
	if n := a.Heads * a.HeadDim; n > maxUnits {
		return fmt.Errorf("%w: heads times head_dim is %d, want at most %d", ErrArchitecture, n, maxUnits)
	}
	if a.Heads%a.KVHeads != 0 {
		return fmt.Errorf("%w: heads (%d) is not a multiple of kv_heads (%d)", ErrArchitecture, a.Heads, a.KVHeads)
	}
	if a.HeadDim%2 != 0 {
		return fmt.Errorf("%w: head_dim (%d) is odd, rotary embedding needs pairs", ErrArchitecture, a.HeadDim)
	}
	if a.RopeTheta <= 0 || a.NormEpsilon <= 0 {
		return fmt.Errorf("%w: rope_theta and norm_epsilon must be positive", ErrArchitecture)
	}
	if !(a.RopeTheta <= 1e15 && a.NormEpsilon <= 1) {
		return fmt.Errorf("%w: rope_theta is %v and norm_epsilon %v, want at most 1e15 and 1", ErrArchitecture, a.RopeTheta, a.NormEpsilon)
	}
	if err := a.Unused.check(a.VocabSize); err != nil {
		return err
	}
	return a.RopeScaling.check()
}
