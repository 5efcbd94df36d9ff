package dialog_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// modelDirectory returns a directory like those in which Qwen3 models are published, with
// random weights and with more rows in the embedding than the tokenizer has tokens.
func modelDirectory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a := model.Architecture{
		VocabSize: 768, HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, FeedForward: 32,
		MaxPositions: 1024, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKNorm: true,
	}
	require.NoError(t, hf.WriteDirectory(dir, a, a.Init(1)))
	b := bundle(t, "hermes")
	for name, text := range map[string]string{
		"tokenizer.json":         string(b.Tokenizer),
		"tokenizer_config.json":  `{"eos_token": "<|im_end|>", "bos_token": null}`,
		"chat_template.jinja":    b.Template,
		"generation_config.json": `{"eos_token_id": [702, 700]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestAPublishedModelHoldsADialog(t *testing.T) {
	t.Parallel()
	dir := modelDirectory(t)
	read, err := dialog.ReadBundle(dir)
	require.NoError(t, err)
	encoded, err := read.Encode()
	require.NoError(t, err)
	stored, err := dialog.DecodeBundle(encoded)
	require.NoError(t, err)
	c, err := stored.Codec(dialog.BundleName(encoded))
	require.NoError(t, err)
	a, weights, err := hf.ReadDirectory(dir)
	require.NoError(t, err)
	require.Equal(t, a.VocabSize, c.VocabSize())
	decoder, err := native.New(native.Options{}).NewDecoder(model.Checkpoint{Architecture: a, Weights: weights})
	require.NoError(t, err)
	defer decoder.Close()

	parameters := json.RawMessage(`{"type":"object","properties":{"unit":{"enum":["cm","inch"]},"n":{"type":"integer","minimum":0,"maximum":99}},"required":["unit","n"],"additionalProperties":false}`)
	tools := []dialog.Tool{{Name: "measure", Parameters: parameters}}
	form := model.Form{Codec: c.Name(), Tools: []model.FormTool{{Name: "measure", Parameters: parameters}}, Call: true}
	history := []dialog.Message{{Role: dialog.User, Content: "How long is it?"}}
	prompt, err := c.Prompt(history, tools)
	require.NoError(t, err)

	finished := 0
	for seed := range uint64(24) {
		held, err := c.Constrain(form)
		require.NoError(t, err)
		sampled, err := decoder.Decode(t.Context(), model.DecodeRequest{
			Prompt: prompt, MaxTokens: 200, Temperature: 1, Stop: c.Stop(), Seed: seed, Form: &form, Constraint: held,
		})
		require.NoError(t, err)
		if sampled.Finish != "stop" {
			continue
		}
		finished++
		reply, problem := c.Parse(sampled.Tokens, tools, numbered)
		require.Empty(t, problem, c.Text(sampled.Tokens))
		require.Len(t, reply.ToolCalls, 1)
		var arguments struct {
			Unit string `json:"unit"`
			N    *int   `json:"n"`
		}
		require.NoError(t, json.Unmarshal([]byte(reply.ToolCalls[0].Function.Arguments), &arguments))
		require.Contains(t, []string{"cm", "inch"}, arguments.Unit)

		bridge, err := c.Bridge([]dialog.Message{{Role: dialog.ToolReply, Content: "7", ToolCallID: "call_0"}}, tools)
		require.NoError(t, err)
		next := append(append(append([]int32{}, prompt...), sampled.Tokens...), bridge...)
		free, err := decoder.Decode(t.Context(), model.DecodeRequest{Prompt: next, MaxTokens: 20, Temperature: 1, Stop: c.Stop(), Seed: seed})
		require.NoError(t, err)
		reply, _ = c.Parse(free.Tokens, tools, numbered)
		require.Equal(t, dialog.Assistant, reply.Role, "whatever a random model says is read")
	}
	require.Positive(t, finished)
}
