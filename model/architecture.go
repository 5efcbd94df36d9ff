package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
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

// RopeScaling slows down the low frequencies of the rotary embedding, so that a model
// that was trained on few positions can be used for many. It is the scaling of Llama 3.1
// and 3.2, which config.json calls rope_type "llama3". Its zero value changes nothing.
//
// A frequency f, in radians per position, makes one turn in 2π/f positions. If there are
// more than HighFrequencyFactor turns in OriginalPositions, f stays. If there are fewer
// than LowFrequencyFactor, it becomes f/Factor. Between the two it changes linearly with
// the number of turns.
type RopeScaling struct {
	Factor              float64 `json:"factor"`
	LowFrequencyFactor  float64 `json:"low_freq_factor"`
	HighFrequencyFactor float64 `json:"high_freq_factor"`
	OriginalPositions   int     `json:"original_max_position_embeddings"`
}

// Frequency returns the scaled frequency. The conversions keep a compiler from fusing
// operations, which would give other bits on other processors.
func (s RopeScaling) Frequency(f float64) float64 {
	if s == (RopeScaling{}) {
		return f
	}
	turns := float64(s.OriginalPositions) / (2 * math.Pi / f)
	switch {
	case turns > s.HighFrequencyFactor:
		return f
	case turns < s.LowFrequencyFactor:
		return f / s.Factor
	}
	kept := (turns - s.LowFrequencyFactor) / (s.HighFrequencyFactor - s.LowFrequencyFactor)
	return float64((1-kept)*f/s.Factor) + float64(kept*f)
}

// check names the field that makes the scaling impossible.
func (s RopeScaling) check() error {
	if s == (RopeScaling{}) {
		return nil
	}
	switch {
	case !(s.Factor >= 1 && s.Factor <= 1e6):
		return fmt.Errorf("%w: rope_scaling: factor is %v, want 1 to 1e6", ErrArchitecture, s.Factor)
	case !(s.LowFrequencyFactor > 0 && s.LowFrequencyFactor < s.HighFrequencyFactor && s.HighFrequencyFactor <= 1e6):
		return fmt.Errorf("%w: rope_scaling: low_freq_factor is %v and high_freq_factor %v, want 0 < low < high, at most 1e6",
			ErrArchitecture, s.LowFrequencyFactor, s.HighFrequencyFactor)
	case s.OriginalPositions < 1 || s.OriginalPositions > maxPositions:
		return fmt.Errorf("%w: rope_scaling: original_max_position_embeddings is %d, want 1 to %d", ErrArchitecture, s.OriginalPositions, maxPositions)
	}
	return nil
}

// Precision is how the matrices of a frozen base are rounded, once, and held in memory.
// Engines compute exactly with the float32 value of each rounded number; vectors (norms,
// biases) stay in float32.
type Precision string

// The precisions, with the bytes that a number takes in files and in memory.
const (
	F32  Precision = "f32"  // 4; nothing is rounded
	BF16 Precision = "bf16" // 2; to the nearest bfloat16
	// Q8_0 is llama.cpp's format: integers of eight bits, with one factor in F16 for each
	// 32 numbers of a row. It takes 1.06 bytes in files and 1.13 in memory. A base that
	// was read from a GGUF file in Q8_0 loses nothing.
	Q8_0 Precision = "q8_0"
)

// Precisions returns all precisions.
func Precisions() []Precision { return []Precision{F32, BF16, Q8_0} }

// quantBlock is how many numbers of a row share a factor of Q8_0.
const quantBlock = 32

// Check returns the reason why a model of architecture a can't be held in precision p.
func (p Precision) Check(a Architecture) error {
	if !slices.Contains(Precisions(), p) {
		return fmt.Errorf("%w: precision of the base is %q, want f32, bf16 or q8_0", ErrAdapter, p)
	}
	if p != Q8_0 {
		return nil
	}
	for _, n := range []struct {
		name string
		size int
		of   int
	}{
		{"hidden_size", a.HiddenSize, quantBlock},
		{"intermediate_size", a.FeedForward, quantBlock},
		{"the width of all heads", a.Heads * a.HeadDim, quantBlock},
		{"head_dim", a.HeadDim, quantBlock / 2},
	} {
		if n.size%n.of != 0 {
			return fmt.Errorf("%w: a base in q8_0 wants %s to be a multiple of %d, it is %d: take bf16", ErrAdapter, n.name, n.of, n.size)
		}
	}
	return nil
}

// Bytes returns how many bytes n numbers of matrices take in a file and in memory, where
// factors are float32.
func (p Precision) Bytes(n int64) (stored, held int64) {
	switch p {
	case BF16:
		return 2 * n, 2 * n
	case Q8_0:
		return n + 2*n/quantBlock, n + 4*n/quantBlock
	}
	return 4 * n, 4 * n
}
