package model

import (
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

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
