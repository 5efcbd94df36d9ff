package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// The layers that trainable_token_indices may name, by the last part of their names.
const (
	embedTokens = "embed_tokens"
	headTokens  = "lm_head"
)

// tokenIndices is the field trainable_token_indices of PEFT's: the tokens whose rows are
// trained, by layer. A list stands for the embedding, and for the output layer where that
// is the same matrix.
type tokenIndices map[string][]int32

// newTokenIndices returns the field for an adapter, or nil if it trains no rows.
func newTokenIndices(c model.Checkpoint) any {
	tokens := c.Adapter.Tokens
	switch {
	case len(tokens) == 0:
		return nil
	case c.Architecture.Tied || c.Architecture.ValueHead:
		return tokens
	}
	return tokenIndices{embedTokens: tokens, headTokens: tokens}
}

// readTokenIndices reads the field. It returns the tokens, and whether the field names
// the output layer.
func readTokenIndices(raw json.RawMessage) (tokens []int32, head bool, err error) {
	wrong := func(format string, args ...any) ([]int32, bool, error) {
		return nil, false, fmt.Errorf("%w: %s: trainable_token_indices: %s", model.ErrAdapter, model.AdapterConfigFile, fmt.Sprintf(format, args...))
	}
	if slices.Contains([]string{"", "null", "[]", "{}"}, string(raw)) {
		return nil, false, nil
	}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &tokens); err != nil {
			return wrong("%v", err)
		}
		return tokens, false, nil
	}
	var layers tokenIndices
	if err := json.Unmarshal(raw, &layers); err != nil {
		return wrong("%v", err)
	}
	found := tokenIndices{}
	for _, name := range slices.Sorted(maps.Keys(layers)) {
		last := name[strings.LastIndexByte(name, '.')+1:]
		if last != embedTokens && last != headTokens {
			return wrong("layer %q: rows of %s and %s can be trained", name, embedTokens, headTokens)
		}
		if _, twice := found[last]; twice {
			return wrong("layer %s is named twice", last)
		}
		found[last] = layers[name]
	}
	tokens, embeds := found[embedTokens]
	other, head := found[headTokens]
	switch {
	case !embeds:
		return wrong("layer %s is absent: rows of the embedding and of the output layer are trained together", embedTokens)
	case head && !slices.Equal(tokens, other):
		return wrong("%s and %s name different tokens: rows of the embedding and of the output layer are trained together", embedTokens, headTokens)
	}
	return tokens, head, nil
}

// checkTokenLayers returns an error if an adapter leaves out the rows of an output layer
// that is a matrix of its own.
func checkTokenLayers(l model.LoRA, head bool, a model.Architecture) error {
	if len(l.Tokens) == 0 || head || a.Tied {
		return nil
	}
	return fmt.Errorf(`%w: %s: trainable_token_indices names the embedding alone, and the output layer of this base is a matrix of its own, whose rows have to be trained too: want {"%s": […], "%s": […]}`,
		model.ErrAdapter, model.AdapterConfigFile, embedTokens, headTokens)
}
