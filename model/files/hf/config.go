package hf

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// ErrUnsupported is wrapped, with the name of the setting, when a config.json describes a
// model that model.Architecture cannot describe.
var ErrUnsupported = errors.New("unsupported model")

// The model types that are read. A Mistral without a sliding window computes what a
// Llama does and is written as one.
const (
	llama   = "llama"
	mistral = "mistral"
	qwen2   = "qwen2"
	qwen3   = "qwen3"
)

// mistralWindow is the sliding_window of a Mistral whose config.json has none.
const mistralWindow = 4096

// config holds the fields of a config.json that decide what a model computes. Pointers
// distinguish an absent or null field, which means a default, from zero.
type config struct {
	ModelType             string   `json:"model_type"`
	VocabSize             int      `json:"vocab_size"`
	HiddenSize            int      `json:"hidden_size"`
	NumHiddenLayers       int      `json:"num_hidden_layers"`
	NumAttentionHeads     int      `json:"num_attention_heads"`
	NumKeyValueHeads      *int     `json:"num_key_value_heads"`
	HeadDim               *int     `json:"head_dim"`
	IntermediateSize      int      `json:"intermediate_size"`
	MaxPositionEmbeddings int      `json:"max_position_embeddings"`
	RopeTheta             *float64 `json:"rope_theta"`
	RMSNormEps            *float64 `json:"rms_norm_eps"`
	TieWordEmbeddings     bool     `json:"tie_word_embeddings"`
	HiddenAct             *string  `json:"hidden_act"`
	// Settings that must be off.
	AttentionBias       bool            `json:"attention_bias"`
	MLPBias             bool            `json:"mlp_bias"`
	UseSlidingWindow    bool            `json:"use_sliding_window"`
	SlidingWindow       json.RawMessage `json:"sliding_window"`
	LayerTypes          []string        `json:"layer_types"`
	PretrainingTP       *int            `json:"pretraining_tp"`
	PartialRotaryFactor *float64        `json:"partial_rotary_factor"`
	NumExperts          int             `json:"num_experts"`
	NumLocalExperts     int             `json:"num_local_experts"`
	QuantizationConfig  json.RawMessage `json:"quantization_config"`
	RopeScaling         *rope           `json:"rope_scaling"`
	RopeParameters      *rope           `json:"rope_parameters"`
	OriginalPositions   *int            `json:"original_max_position_embeddings"`
	head
}

// ReadConfig reads the config.json of a Llama, SmolLM2, Mistral, Qwen2 (and 2.5) or
// Qwen3 model.
func ReadConfig(text []byte) (model.Architecture, error) {
	var c config
	if err := model.DecodeJSON(text, &c); err != nil {
		return model.Architecture{}, fmt.Errorf("%w: config.json: %w", ErrFormat, err)
	}
	if err := c.supported(); err != nil {
		return model.Architecture{}, err
	}
	a := model.Architecture{
		VocabSize: c.VocabSize, HiddenSize: c.HiddenSize, Layers: c.NumHiddenLayers,
		Heads: c.NumAttentionHeads, KVHeads: c.NumAttentionHeads, FeedForward: c.IntermediateSize,
		MaxPositions: c.MaxPositionEmbeddings, NormEpsilon: 1e-6, Tied: c.TieWordEmbeddings,
		QKVBias: c.ModelType == qwen2, QKNorm: c.ModelType == qwen3,
	}
	switch {
	case c.NumKeyValueHeads != nil:
		a.KVHeads = *c.NumKeyValueHeads
	case c.ModelType != llama: // the other types' default is the number of some published model
		return model.Architecture{}, fmt.Errorf("%w: config.json: num_key_value_heads is absent", ErrFormat)
	}
	switch {
	case c.HeadDim != nil:
		a.HeadDim = *c.HeadDim
	case c.ModelType == qwen3:
		a.HeadDim = 128
	case c.NumAttentionHeads > 0:
		a.HeadDim = c.HiddenSize / c.NumAttentionHeads
	}
	if c.RMSNormEps != nil {
		a.NormEpsilon = *c.RMSNormEps
	}
	var err error
	if a.RopeTheta, a.RopeScaling, err = c.rotary(); err != nil {
		return model.Architecture{}, err
	}
	if a.ValueHead, err = c.valueHead(); err != nil {
		return model.Architecture{}, err
	}
	if err := a.Check(); err != nil {
		return model.Architecture{}, fmt.Errorf("%w: config.json: %w", ErrFormat, err)
	}
	return a, nil
}

// supported returns an error that names the setting if the model would be computed
// wrongly.
func (c config) supported() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: config.json: %s", ErrUnsupported, fmt.Sprintf(format, args...))
	}
	switch c.ModelType {
	case llama, qwen2, qwen3:
	case mistral:
		if why := c.window(); why != "" {
			return refuse("%s", why)
		}
	default:
		return refuse("model_type %q is not llama, mistral, qwen2 or qwen3: engine torch trains others that transformers knows", c.ModelType)
	}
	for _, r := range c.ropes() {
		if why := r.refused(); why != "" {
			return refuse("%s", why)
		}
	}
	for _, kind := range c.LayerTypes {
		if kind != "full_attention" {
			return refuse("layer_types has %q", kind)
		}
	}
	switch {
	case c.UseSlidingWindow:
		return refuse("use_sliding_window is true")
	case c.AttentionBias:
		return refuse("attention_bias is true (it puts a bias on o_proj too)")
	case c.MLPBias:
		return refuse("mlp_bias is true")
	case c.HiddenAct != nil && *c.HiddenAct != "silu":
		return refuse("hidden_act is %q, want silu", *c.HiddenAct)
	case c.PretrainingTP != nil && *c.PretrainingTP > 1:
		return refuse("pretraining_tp is %d", *c.PretrainingTP)
	case c.PartialRotaryFactor != nil && *c.PartialRotaryFactor != 1:
		return refuse("partial_rotary_factor is %v", *c.PartialRotaryFactor)
	case c.NumExperts > 0 || c.NumLocalExperts > 0:
		return refuse("num_experts: a mixture of experts")
	case len(c.QuantizationConfig) > 0 && string(c.QuantizationConfig) != "null":
		return refuse("quantization_config is set")
	}
	return nil
}

// window returns what is wrong with the sliding_window of a Mistral: a window smaller
// than the number of positions limits what the last positions see. The result is empty
// for a window that holds all positions. A Qwen has a window only with
// use_sliding_window, and a Llama never has one.
func (c config) window() string {
	window := mistralWindow
	if text := string(c.SlidingWindow); text == "null" {
		return ""
	} else if text != "" {
		if err := json.Unmarshal(c.SlidingWindow, &window); err != nil {
			return fmt.Sprintf("sliding_window is %s, want a whole number or null", text)
		}
	}
	if window < c.MaxPositionEmbeddings {
		return fmt.Sprintf("sliding_window is %d, below max_position_embeddings (%d)", window, c.MaxPositionEmbeddings)
	}
	return ""
}

// LayoutVersion is the version of transformers whose layout is written. Readers take a
// directory whose config.json names none for one of an old Mistral, whose tokenizer they
// would correct.
const LayoutVersion = "5.0.0"

// written is a config.json as transformers reads it. Special tokens are null:
// a version's codec knows them.
type written struct {
	Architectures         []string `json:"architectures"`
	ModelType             string   `json:"model_type"`
	VocabSize             int      `json:"vocab_size"`
	HiddenSize            int      `json:"hidden_size"`
	NumHiddenLayers       int      `json:"num_hidden_layers"`
	NumAttentionHeads     int      `json:"num_attention_heads"`
	NumKeyValueHeads      int      `json:"num_key_value_heads"`
	HeadDim               int      `json:"head_dim"`
	IntermediateSize      int      `json:"intermediate_size"`
	MaxPositionEmbeddings int      `json:"max_position_embeddings"`
	RopeTheta             float64  `json:"rope_theta"`
	RMSNormEps            float64  `json:"rms_norm_eps"`
	TieWordEmbeddings     bool     `json:"tie_word_embeddings"`
	HiddenAct             string   `json:"hidden_act"`
	AttentionBias         bool     `json:"attention_bias"`
	AttentionDropout      float64  `json:"attention_dropout"`
	UseSlidingWindow      bool     `json:"use_sliding_window"`
	TorchDtype            string   `json:"torch_dtype"`
	BOSTokenID            *int     `json:"bos_token_id"`
	EOSTokenID            *int     `json:"eos_token_id"`
	Version               string   `json:"transformers_version,omitempty"`
	// Two names for the same settings: transformers 4 and most servers read the first,
	// transformers 5 reads either.
	RopeScaling    *rope `json:"rope_scaling,omitempty"`
	RopeParameters *rope `json:"rope_parameters,omitempty"`
	labels
}

// WriteConfig returns the config.json of a: a Qwen2 model if a has QKV biases, a Qwen3
// model if it has q/k norms, else a Llama model. No published type has both. A critic is
// written as the model class that classifies tokens, with one label.
func WriteConfig(a model.Architecture) ([]byte, error) { return writeConfig(a, "") }

func writeConfig(a model.Architecture, version string) ([]byte, error) {
	if err := a.Check(); err != nil {
		return nil, fmt.Errorf("write config.json: %w", err)
	}
	kind, class := llama, "Llama"
	switch {
	case a.QKVBias && a.QKNorm:
		return nil, fmt.Errorf("%w: both qkv_bias and qk_norm", ErrUnsupported)
	case a.QKVBias:
		kind, class = qwen2, "Qwen2"
	case a.QKNorm:
		kind, class = qwen3, "Qwen3"
	}
	suffix, labels := headOf(a)
	scaling, parameters := ropesOf(a)
	text, err := json.MarshalIndent(written{
		Architectures: []string{class + suffix}, ModelType: kind, VocabSize: a.VocabSize, HiddenSize: a.HiddenSize,
		NumHiddenLayers: a.Layers, NumAttentionHeads: a.Heads, NumKeyValueHeads: a.KVHeads, HeadDim: a.HeadDim,
		IntermediateSize: a.FeedForward, MaxPositionEmbeddings: a.MaxPositions, RopeTheta: a.RopeTheta,
		RMSNormEps: a.NormEpsilon, TieWordEmbeddings: a.Tied, HiddenAct: "silu", TorchDtype: "float32", Version: version, RopeScaling: scaling, RopeParameters: parameters, labels: labels,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write config.json: %w", err)
	}
	return append(text, '\n'), nil
}

// rope is how transformers writes rotary embeddings: as rope_scaling up to version 4,
// with rope_theta as a separate field, and as rope_parameters since version 5.
type rope struct {
	Type      string   `json:"rope_type,omitempty"`
	OldType   string   `json:"type,omitempty"`
	RopeTheta *float64 `json:"rope_theta,omitempty"`
	Partial   *float64 `json:"partial_rotary_factor,omitempty"`
	// Only of type llama3.
	Factor            *float64 `json:"factor,omitempty"`
	LowFrequency      *float64 `json:"low_freq_factor,omitempty"`
	HighFrequency     *float64 `json:"high_freq_factor,omitempty"`
	OriginalPositions *int     `json:"original_max_position_embeddings,omitempty"`
}

const llama3Rope = "llama3"

// rotary reads rope_theta and the scaling. A file may have both forms, if they say
// the same.
func (c config) rotary() (theta float64, scaling model.RopeScaling, err error) {
	broken := func(format string, args ...any) (float64, model.RopeScaling, error) {
		return 0, model.RopeScaling{}, fmt.Errorf("%w: config.json: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	thetas, scalings := map[string]float64{}, map[string]model.RopeScaling{}
	if c.RopeTheta != nil {
		thetas["rope_theta"] = *c.RopeTheta
	}
	for _, r := range c.ropes() {
		if r.RopeTheta != nil {
			thetas[r.field] = *r.RopeTheta
		}
		scalings[r.field] = model.RopeScaling{}
		if r.kind() != llama3Rope {
			continue
		}
		if r.Factor == nil || r.LowFrequency == nil || r.HighFrequency == nil || r.OriginalPositions == nil {
			return broken("%s of type %q lacks one of factor, low_freq_factor, high_freq_factor, original_max_position_embeddings", r.field, llama3Rope)
		}
		scalings[r.field] = model.RopeScaling{
			Factor: *r.Factor, LowFrequencyFactor: *r.LowFrequency, HighFrequencyFactor: *r.HighFrequency, OriginalPositions: *r.OriginalPositions,
		}
		if outer := c.OriginalPositions; outer != nil && *outer != *r.OriginalPositions {
			return broken("original_max_position_embeddings is %d, but %d in %s", *outer, *r.OriginalPositions, r.field)
		}
	}
	theta, first := 10000, ""
	for _, field := range []string{"rope_theta", "rope_scaling", "rope_parameters"} {
		t, ok := thetas[field]
		switch {
		case ok && first != "" && t != theta:
			return broken("rope_theta is %v in %s, but %v in %s", theta, first, t, field)
		case ok:
			theta, first = t, field
		}
	}
	old, isOld := scalings["rope_scaling"]
	scaling, isNew := scalings["rope_parameters"]
	switch {
	case isOld && isNew && old != scaling:
		return broken("rope_scaling and rope_parameters differ")
	case isOld:
		scaling = old
	}
	return theta, scaling, nil
}

// namedRope is a rope with the name of its field.
type namedRope struct {
	field string
	*rope
}

func (c config) ropes() []namedRope {
	var set []namedRope
	for _, r := range []namedRope{{"rope_scaling", c.RopeScaling}, {"rope_parameters", c.RopeParameters}} {
		if r.rope != nil && *r.rope != (rope{}) {
			set = append(set, r)
		}
	}
	return set
}

// kind returns the type under its new or its old name; empty means the default.
func (r rope) kind() string {
	if r.Type != "" {
		return r.Type
	}
	return r.OldType
}

// refused returns what differs from what model.RopeScaling computes, and "" if nothing
// does.
func (r namedRope) refused() string {
	switch kind := r.kind(); {
	case r.OldType != "" && r.OldType != kind:
		return fmt.Sprintf("%s has rope_type %q and type %q", r.field, r.Type, r.OldType)
	case kind != "" && kind != "default" && kind != llama3Rope:
		return fmt.Sprintf("%s of type %q, want default or llama3", r.field, kind)
	case r.Partial != nil && *r.Partial != 1:
		return fmt.Sprintf("%s with partial_rotary_factor %v", r.field, *r.Partial)
	}
	return ""
}

// ropesOf returns a's scaling in the forms that versions 4 and 5 of transformers read,
// and nil without scaling.
func ropesOf(a model.Architecture) (scaling, parameters *rope) {
	s := a.RopeScaling
	if s == (model.RopeScaling{}) {
		return nil, nil
	}
	scaling = &rope{
		Type: llama3Rope, Factor: &s.Factor, LowFrequency: &s.LowFrequencyFactor, HighFrequency: &s.HighFrequencyFactor,
		OriginalPositions: &s.OriginalPositions,
	}
	inner := *scaling
	inner.RopeTheta = &a.RopeTheta
	return scaling, &inner
}
