package hf_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func adapter(targets ...string) model.Checkpoint {
	a := model.Tiny(32)
	l := model.LoRA{Rank: 4, Alpha: 6.5, Targets: targets}
	base := &model.Base{Digest: "sha256:base", Architecture: a, Each: model.EachOf(func() (model.Weights, error) { return a.Init(1), nil })}
	return model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base}, Weights: a.InitAdapter(l, 3)}
}

func TestAdaptersRoundTrip(t *testing.T) {
	t.Parallel()
	c, dir := adapter("up_proj", "q_proj"), t.TempDir()
	require.NoError(t, hf.WritePEFT(dir, c, c.Adapter.Base.Digest))
	got, err := hf.ReadPEFT(dir, c.Adapter.Base)
	require.NoError(t, err)
	require.True(t, c.Adapter.Equal(got.Adapter.LoRA))
	require.Empty(t, cmp.Diff(c.Weights, got.Weights))

	other := *c.Adapter.Base
	other.Digest = "sha256:other"
	_, err = hf.ReadPEFT(dir, &other)
	require.ErrorIs(t, err, model.ErrAdapter)
	require.ErrorContains(t, err, "made for base sha256:base")
	other = *c.Adapter.Base
	other.Architecture.HiddenSize *= 2
	_, err = hf.ReadPEFT(dir, &other)
	require.ErrorIs(t, err, model.ErrAdapter)
	require.ErrorContains(t, err, "q_proj.lora_A.weight")

	require.ErrorIs(t, hf.WritePEFT(dir, model.Checkpoint{Architecture: c.Architecture, Weights: c.Architecture.Init(1)}, ""), model.ErrAdapter)
}

// PEFT lists the tokens of tied embeddings, and names both layers where they are two
// matrices. Its order need not be that of the ids.
func TestTrainedTokensRoundTrip(t *testing.T) {
	t.Parallel()
	for _, tied := range []bool{true, false} {
		c, dir := adapter("q_proj"), t.TempDir()
		c.Architecture.Tied, c.Adapter.Base.Architecture.Tied = tied, tied
		c.Adapter.Base.Each = model.EachOf(func() (model.Weights, error) { return c.Architecture.Init(1), nil })
		c.Adapter.Tokens = []int32{9, 4}
		var err error
		c.Weights, err = c.Adapter.Init(c.Architecture, 3)
		require.NoError(t, err)
		require.NoError(t, hf.WritePEFT(dir, c, "some/model"))
		got, err := hf.ReadPEFT(dir, c.Adapter.Base)
		require.NoError(t, err)
		require.True(t, c.Adapter.Equal(got.Adapter.LoRA))
		require.Empty(t, cmp.Diff(c.Weights, got.Weights))

		config, err := os.ReadFile(filepath.Join(dir, model.AdapterConfigFile))
		require.NoError(t, err)
		var read struct {
			Tokens any `json:"trainable_token_indices"`
		}
		require.NoError(t, json.Unmarshal(config, &read))
		var want any = []any{9.0, 4.0}
		if !tied {
			want = map[string]any{"embed_tokens": want, "lm_head": want}
		}
		require.Equal(t, want, read.Tokens)

		both := map[string]any{"model.embed_tokens": []int{9, 4}, "lm_head": []int{9, 4}}
		for refusal, tokens := range map[string]any{
			"":                                    both,
			"name different tokens":               map[string]any{"embed_tokens": []int{9, 4}, "lm_head": []int{4, 9}},
			"layer embed_tokens is absent":        map[string]any{"lm_head": []int{9, 4}},
			`layer "score"`:                       map[string]any{"embed_tokens": []int{9, 4}, "score": []int{1}},
			"layer embed_tokens is named twice":   map[string]any{"embed_tokens": []int{9, 4}, "model.embed_tokens": []int{9, 4}},
			"trainable_tokens has 9 twice":        map[string]any{"embed_tokens": []int{9, 9}, "lm_head": []int{9, 9}},
			"trainable_tokens has 99, but the vo": map[string]any{"embed_tokens": []int{9, 99}, "lm_head": []int{9, 99}},
			"trainable_token_indices: json: ":     []string{"<tool_call>"},
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, model.AdapterConfigFile), with(t, string(config), map[string]any{"trainable_token_indices": tokens}), 0o600))
			_, err = hf.ReadPEFT(dir, c.Adapter.Base)
			if refusal == "" {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, model.ErrAdapter)
			require.ErrorContains(t, err, refusal)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, model.AdapterConfigFile), with(t, string(config), map[string]any{"trainable_token_indices": []int{9, 4}}), 0o600))
		if _, err = hf.ReadPEFT(dir, c.Adapter.Base); tied {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, `want {"embed_tokens": […], "lm_head": […]}`)
		}
	}
}

func TestUnsupportedAdaptersAreRefusedByName(t *testing.T) {
	t.Parallel()
	c, dir := adapter("v_proj"), t.TempDir()
	require.NoError(t, hf.WritePEFT(dir, c, "some/model"))
	config, err := os.ReadFile(filepath.Join(dir, model.AdapterConfigFile))
	require.NoError(t, err)
	_, base, err := hf.ReadPEFTConfig(config)
	require.NoError(t, err)
	require.Equal(t, "some/model", base)
	for field, value := range map[string]any{
		"peft_type": "IA3", "bias": "all", "use_dora": true, "use_rslora": true, "fan_in_fan_out": true, "r": 0, "lora_alpha": 0,
		"target_modules": "all-linear", "modules_to_save": []string{"lm_head"}, "rank_pattern": map[string]int{"q_proj": 2},
		"layers_to_transform": []int{1}, "lora_bias": true,
	} {
		_, _, err := hf.ReadPEFTConfig(with(t, string(config), map[string]any{field: value}))
		require.ErrorIs(t, err, model.ErrAdapter, field)
	}
	_, _, err = hf.ReadPEFTConfig(with(t, string(config), map[string]any{"target_modules": []string{"lm_head"}}))
	require.ErrorContains(t, err, `"lm_head"`)
	_, _, err = hf.ReadPEFTConfig([]byte("{"))
	require.ErrorIs(t, err, model.ErrAdapter)
	// PEFT writes fields that say nothing.
	_, _, err = hf.ReadPEFTConfig(with(t, string(config), map[string]any{"rank_pattern": map[string]int{}, "layers_to_transform": nil, "eva_config": nil}))
	require.NoError(t, err)
}
