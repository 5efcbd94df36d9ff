package hf_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// The fields of published config.json files, as far as they matter here.
const (
	llama3 = `{"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":128000,
		"eos_token_id":128001,"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,
		"max_position_embeddings":8192,"model_type":"llama","num_attention_heads":32,"num_hidden_layers":32,
		"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":500000.0,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_cache":true,"vocab_size":128256}`
	qwen25 = `{"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"hidden_act":"silu","hidden_size":896,
		"intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":21,"model_type":"qwen2",
		"num_attention_heads":14,"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
		"sliding_window":32768,"tie_word_embeddings":true,"use_mrope":false,"use_sliding_window":false,"vocab_size":151936}`
	qwen3 = `{"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"dtype":"bfloat16","head_dim":128,"hidden_act":"silu",
		"hidden_size":1024,"intermediate_size":3072,"layer_types":["full_attention","full_attention"],
		"max_position_embeddings":40960,"model_type":"qwen3","num_attention_heads":16,"num_hidden_layers":28,
		"num_key_value_heads":8,"rms_norm_eps":1e-06,"rope_parameters":{"rope_theta":1000000,"rope_type":"default"},
		"sliding_window":null,"tie_word_embeddings":true,"use_sliding_window":false,"vocab_size":151936}`
)

func TestPublishedConfigsAreRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config     string
		want       model.Architecture
		parameters int
	}{
		"Llama 3 8B": {llama3, model.Architecture{
			VocabSize: 128256, HiddenSize: 4096, Layers: 32, Heads: 32, KVHeads: 8, HeadDim: 128, FeedForward: 14336,
			MaxPositions: 8192, RopeTheta: 500000, NormEpsilon: 1e-5,
		}, 8_030_261_248},
		"Qwen2.5 0.5B": {qwen25, model.Architecture{
			VocabSize: 151936, HiddenSize: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64, FeedForward: 4864,
			MaxPositions: 32768, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKVBias: true,
		}, 494_032_768},
		"Qwen3 0.6B": {qwen3, model.Architecture{
			VocabSize: 151936, HiddenSize: 1024, Layers: 28, Heads: 16, KVHeads: 8, HeadDim: 128, FeedForward: 3072,
			MaxPositions: 40960, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKNorm: true,
		}, 596_049_920},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := hf.ReadConfig([]byte(c.config))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.parameters, got.Parameters()) // as the model's card says
		})
	}
}

// scaling returns the rope_scaling of Llama 3.1 with one number changed.
func scaling(field string, value float64) map[string]any {
	all := map[string]any{
		"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192,
	}
	all[field] = value
	return all
}

// The two forms are Llama 3.2 as published for transformers 4, and as transformers 5
// writes it.
func TestScaledRotaryEmbeddingIsReadInBothForms(t *testing.T) {
	t.Parallel()
	want, err := hf.ReadConfig([]byte(llama3))
	require.NoError(t, err)
	want.RopeScaling = model.RopeScaling{Factor: 32, LowFrequencyFactor: 1, HighFrequencyFactor: 4, OriginalPositions: 8192}
	parameters := scaling("factor", 32)
	parameters["rope_theta"] = 500000.0
	for name, fields := range map[string]map[string]any{
		"rope_scaling":    {"rope_scaling": scaling("factor", 32)},
		"rope_parameters": {"rope_parameters": parameters, "rope_theta": nil},
		"both":            {"rope_scaling": scaling("factor", 32), "rope_parameters": parameters},
	} {
		got, err := hf.ReadConfig(with(t, llama3, fields))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	text, err := hf.WriteConfig(want)
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(text, &c))
	require.Equal(t, map[string]any{
		"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0,
	}, c["rope_scaling"])
	require.InDelta(t, 500000, c["rope_parameters"].(map[string]any)["rope_theta"], 0)
}

func TestAMistralWithoutAWindowIsALlama(t *testing.T) {
	t.Parallel()
	want, err := hf.ReadConfig([]byte(llama3))
	require.NoError(t, err)
	for _, fields := range []map[string]any{
		{"sliding_window": json.RawMessage("null")}, {"sliding_window": 8192}, {"max_position_embeddings": 4096},
	} {
		fields["model_type"] = "mistral"
		got, err := hf.ReadConfig(with(t, llama3, fields))
		require.NoError(t, err, fields)
		got.MaxPositions = want.MaxPositions
		require.Equal(t, want, got)
	}
	_, err = hf.ReadConfig(with(t, llama3, map[string]any{"model_type": "mistral", "sliding_window": json.RawMessage("null"), "num_key_value_heads": nil}))
	require.ErrorContains(t, err, "num_key_value_heads is absent")
}

// with returns a config with fields replaced; a nil value removes the field.
func with(t *testing.T, config string, fields map[string]any) []byte {
	t.Helper()
	var all map[string]any
	require.NoError(t, json.Unmarshal([]byte(config), &all))
	maps.Copy(all, fields)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	b, err := json.Marshal(all)
	require.NoError(t, err)
	return b
}

func TestAbsentFieldsGetTheDefaultsOfTheirModelType(t *testing.T) {
	t.Parallel()
	a, err := hf.ReadConfig(with(t, llama3, map[string]any{"num_key_value_heads": nil, "rope_theta": nil, "rms_norm_eps": nil, "hidden_act": nil}))
	require.NoError(t, err)
	require.Equal(t, 32, a.KVHeads)
	require.InDelta(t, 10000, a.RopeTheta, 0)
	require.InDelta(t, 1e-6, a.NormEpsilon, 0)
	a, err = hf.ReadConfig(with(t, qwen3, map[string]any{"head_dim": nil}))
	require.NoError(t, err)
	require.Equal(t, 128, a.HeadDim)
}

func TestUnsupportedSettingsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		config string
		fields map[string]any
	}{
		`model_type "mixtral"`: {llama3, map[string]any{"model_type": "mixtral"}},
		"sliding_window is 4096, below max_position_embeddings (8192)": {llama3, map[string]any{"model_type": "mistral"}},
		"sliding_window is 8191, below max_position_embeddings":        {llama3, map[string]any{"model_type": "mistral", "sliding_window": 8191}},
		`sliding_window is "wide"`:                                     {llama3, map[string]any{"model_type": "mistral", "sliding_window": "wide"}},
		`model_type "qwen3_moe"`:                                       {qwen3, map[string]any{"model_type": "qwen3_moe"}},
		`model_type ""`:                                                {qwen3, map[string]any{"model_type": nil}},
		`rope_scaling of type "linear"`:                                {llama3, map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 8.0}}},
		`rope_type "llama3" and type "y`:                               {llama3, map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "type": "yarn"}}},
		`rope_scaling of type "yarn"`:                                  {qwen25, map[string]any{"rope_scaling": map[string]any{"type": "yarn"}}},
		`rope_parameters of type "yarn"`:                               {qwen3, map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn"}}},
		"partial_rotary_factor 0.5":                                    {qwen3, map[string]any{"rope_parameters": map[string]any{"partial_rotary_factor": 0.5}}},
		"partial_rotary_factor is 0.25":                                {llama3, map[string]any{"partial_rotary_factor": 0.25}},
		"use_sliding_window":                                           {qwen25, map[string]any{"use_sliding_window": true}},
		`layer_types has "sliding_att`:                                 {qwen3, map[string]any{"layer_types": []string{"sliding_attention"}}},
		"attention_bias":                                               {llama3, map[string]any{"attention_bias": true}},
		"mlp_bias":                                                     {llama3, map[string]any{"mlp_bias": true}},
		`hidden_act is "gelu"`:                                         {qwen25, map[string]any{"hidden_act": "gelu"}},
		"pretraining_tp is 2":                                          {llama3, map[string]any{"pretraining_tp": 2}},
		"mixture of experts":                                           {qwen3, map[string]any{"num_experts": 8}},
		"Classification with 2 labels":                                 {qwen3, map[string]any{"architectures": []string{"Qwen3ForTokenClassification"}}},
		"Classification with 3 labels":                                 {qwen3, map[string]any{"architectures": []string{"Qwen3ForTokenClassification"}, "num_labels": 3}},
		"quantization_config":                                          {qwen25, map[string]any{"quantization_config": map[string]any{"bits": 4}}},
	} {
		_, err := hf.ReadConfig(with(t, c.config, c.fields))
		require.ErrorIs(t, err, hf.ErrUnsupported, want)
		require.ErrorContains(t, err, want)
	}
	_, err := hf.WriteConfig(model.Architecture{
		VocabSize: 2, HiddenSize: 2, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 2, FeedForward: 2, MaxPositions: 2,
		RopeTheta: 1, NormEpsilon: 1, QKVBias: true, QKNorm: true,
	})
	require.ErrorIs(t, err, hf.ErrUnsupported)
}

// transformers has a class for a critic: token classification, with one output.
func TestACriticIsAModelThatClassifiesTokens(t *testing.T) {
	t.Parallel()
	for _, labels := range []map[string]any{{"num_labels": 1}, {"id2label": map[string]any{"0": "LABEL_0"}}} {
		labels["architectures"] = []string{"Qwen2ForTokenClassification"}
		a, err := hf.ReadConfig(with(t, qwen25, labels))
		require.NoError(t, err)
		require.True(t, a.ValueHead)
		b, err := hf.WriteConfig(a)
		require.NoError(t, err)
		var c struct {
			Architectures []string
			ID2Label      map[string]string
		}
		require.NoError(t, json.Unmarshal(b, &c))
		require.Equal(t, []string{"Qwen2ForTokenClassification"}, c.Architectures)
		require.Len(t, c.ID2Label, 1)
	}
	plain, err := hf.ReadConfig([]byte(qwen25))
	require.NoError(t, err)
	b, err := hf.WriteConfig(plain)
	require.NoError(t, err)
	require.NotContains(t, string(b), "label", "a policy's file is what it always was")
}

func TestBrokenConfigsAreRefused(t *testing.T) {
	t.Parallel()
	for want, config := range map[string][]byte{
		"unexpected end":                        []byte(`{`),
		"hidden_size is 0":                      with(t, llama3, map[string]any{"hidden_size": nil}),
		"heads is 0":                            with(t, llama3, map[string]any{"num_attention_heads": 0, "num_key_value_heads": nil}),
		"is not a multiple":                     with(t, llama3, map[string]any{"num_key_value_heads": 5}),
		"head_dim (7) is odd":                   with(t, qwen3, map[string]any{"head_dim": 7}),
		"num_key_value_heads":                   with(t, qwen25, map[string]any{"num_key_value_heads": nil}),
		"lacks one of factor":                   with(t, llama3, map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 8.0}}),
		"factor is 0.5":                         with(t, llama3, map[string]any{"rope_scaling": scaling("factor", 0.5)}),
		"factor is 1 and":                       with(t, llama3, map[string]any{"rope_scaling": scaling("high_freq_factor", 1)}),
		"original_max_position_embeddings is 0": with(t, llama3, map[string]any{"rope_scaling": scaling("original_max_position_embeddings", 0)}),
		"original_max_position_embeddings is 5, but 8192":               with(t, llama3, map[string]any{"rope_scaling": scaling("factor", 8), "original_max_position_embeddings": 5}),
		"rope_scaling and rope_parameters differ":                       with(t, llama3, map[string]any{"rope_scaling": scaling("factor", 8), "rope_parameters": scaling("factor", 4)}),
		"rope_theta is 500000 in rope_theta, but 10 in rope_parameters": with(t, llama3, map[string]any{"rope_parameters": map[string]any{"rope_theta": 10}}),
		"layers is 1000000":                      with(t, llama3, map[string]any{"num_hidden_layers": 1_000_000}),
		"vocab_size is 4611686018427387904":      with(t, llama3, map[string]any{"vocab_size": 1 << 62}),
		"heads times head_dim is":                with(t, llama3, map[string]any{"head_dim": 1 << 23}),
		"max_positions is 1099511627776":         with(t, llama3, map[string]any{"max_position_embeddings": 1 << 40}),
		"rope_theta is 1e+300":                   with(t, llama3, map[string]any{"rope_theta": 1e300}),
		"norm_epsilon 1e+06":                     with(t, llama3, map[string]any{"rms_norm_eps": 1e6}),
		"norm_epsilon must be positive":          with(t, llama3, map[string]any{"rms_norm_eps": -1}),
		"hidden_size can't be a JSON number 1.5": with(t, llama3, map[string]any{"hidden_size": 1.5}),
	} {
		_, err := hf.ReadConfig(config)
		require.ErrorIs(t, err, hf.ErrFormat, want)
		require.ErrorContains(t, err, want)
	}
	_, err := hf.WriteConfig(model.Architecture{})
	require.ErrorIs(t, err, model.ErrArchitecture)
}

func drawArchitecture(t *rapid.T) model.Architecture {
	n := func(name string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, name) }
	kv := n("kv_heads", 1, 3)
	extra := n("extra", 0, 2) // nothing, biases or norms
	var scaling model.RopeScaling
	if rapid.Bool().Draw(t, "scaled") {
		low := rapid.Float64Range(0.1, 9).Draw(t, "low")
		scaling = model.RopeScaling{Factor: rapid.Float64Range(1, 64).Draw(t, "factor"), LowFrequencyFactor: low, HighFrequencyFactor: low + 1, OriginalPositions: n("original", 1, 99)}
	}
	return model.Architecture{
		VocabSize: n("vocab", 1, 9), HiddenSize: n("hidden", 1, 9), Layers: n("layers", 1, 3), KVHeads: kv, Heads: kv * n("group", 1, 3),
		HeadDim: 2 * n("half", 1, 3), FeedForward: n("feed_forward", 1, 9), MaxPositions: n("positions", 1, 99),
		RopeTheta: rapid.Float64Range(1, 1e7).Draw(t, "theta"), NormEpsilon: rapid.Float64Range(1e-9, 1e-2).Draw(t, "epsilon"),
		Tied: rapid.Bool().Draw(t, "tied"), QKVBias: extra == 1, QKNorm: extra == 2, RopeScaling: scaling, ValueHead: rapid.Bool().Draw(t, "critic"),
	}
}

func TestWrittenConfigsReadTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := drawArchitecture(t)
		b, err := hf.WriteConfig(a)
		require.NoError(t, err)
		got, err := hf.ReadConfig(b)
		require.NoError(t, err)
		require.Equal(t, a, got)
	})
}

// FuzzReadConfig checks that whatever ReadConfig accepts can be written, and is then read
// the same.
func FuzzReadConfig(f *testing.F) {
	for _, config := range []string{llama3, qwen25, qwen3} {
		f.Add([]byte(config))
	}
	f.Add([]byte(`{"model_type":"mistral","rope_scaling":{"rope_type":"llama3","factor":1e308},"hidden_size":-1,"sliding_window":{}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		a, err := hf.ReadConfig(config)
		if err != nil {
			return
		}
		text, err := hf.WriteConfig(a)
		require.NoError(t, err)
		again, err := hf.ReadConfig(text)
		require.NoError(t, err)
		require.Equal(t, a, again)
	})
}
