package testsuite_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// The checkpoints are tiny models with random weights, in BF16, F16 and F32.
// Their config.json was written by transformers 5.23.0; their weights and the
// log-probabilities come from mlx-lm 0.32.2, which shares no code with either
// engine.
func TestEnginesAgreeWithAnotherImplementation(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	for _, name := range []string{"llama", "qwen2", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("checkpoints", name)
			a, w, err := hf.ReadDirectory(dir)
			require.NoError(t, err)
			text, err := os.ReadFile(filepath.Join(dir, "logprobs.json"))
			require.NoError(t, err)
			var want struct {
				Tokens   []int32   `json:"tokens"`
				Logprobs []float32 `json:"logprobs"`
			}
			require.NoError(t, json.Unmarshal(text, &want))
			both(t, engines(t), model.Checkpoint{Architecture: a, Weights: w}, func(engine string, tr model.Trainer) {
				got, _, err := tr.Score(t.Context(), []model.Row{{Tokens: want.Tokens}})
				require.NoError(t, err)
				require.InDeltaSlice(t, want.Logprobs, got[0], logprobTolerance, engine)
			})
		})
	}
}
