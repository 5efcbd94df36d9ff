package testsuite_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// published writes a model as it is published: a Qwen3 architecture with random
// weights, a tokenizer and a chat template.
func published(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a := model.Architecture{
		VocabSize: 768, HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, FeedForward: 32,
		MaxPositions: 512, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKNorm: true,
	}
	require.NoError(t, hf.WriteDirectory(dir, a, a.Init(1)))
	for name, from := range map[string]string{
		"tokenizer.json":      filepath.Join("..", "model", "tokenizer", "testdata", "qwen.json"),
		"chat_template.jinja": filepath.Join("..", "dialog", "testdata", "templates", "hermes.jinja"),
	} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	for name, text := range map[string]string{
		"tokenizer_config.json":  `{"eos_token": "<|im_end|>", "bos_token": null}`,
		"generation_config.json": `{"eos_token_id": [702, 700]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// talk asks twice in one dialog and is rewarded for letters.
func talk(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	config := openai.DefaultConfig(env.Key)
	config.BaseURL = env.BaseURL
	client := openai.NewClientWithConfig(config)
	messages := []openai.ChatCompletionMessage{{Role: "user", Content: task.Input}}
	said := ""
	for range 2 {
		reply, err := client.CreateChatCompletion(ctx, openai.ChatCompletionRequest{Model: env.Model, Messages: messages})
		if err != nil {
			return "", err
		}
		said += reply.Choices[0].Message.Content
		messages = append(messages, reply.Choices[0].Message, openai.ChatCompletionMessage{Role: "user", Content: "Go on."})
	}
	letters := strings.Count(said, "e") + strings.Count(said, "t")
	return said, env.Reward(float64(letters) / float64(len(said)+1))
}

func TestAPublishedModelIsTrainedWithItsOwnTokensAndTemplate(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	dir := published(t)
	ctx := t.Context()
	st := startWith(ctx, t, t.TempDir(), agent.Registry{"talk": talk})
	defer func() { require.NoError(t, st.Close()) }()
	s := spec.Spec{
		Model: spec.Model{Base: dir, Codec: "template"}, Agent: spec.Agent{Func: "talk"}, Tasks: spec.Tasks{Train: "arithmetic:train:4"},
		Grader: spec.Grader{Type: "agent"}, Training: spec.Training{Steps: 2, TasksPerStep: 2, SamplesPerTask: 4},
	}.WithDefaults()
	result, err := train(ctx, st, "published", s)
	require.NoError(t, err)
	require.Equal(t, 2, result.Steps)

	// The run uses the content that the directory had when the run began.
	require.NoError(t, os.RemoveAll(dir))
	attempts, err := st.Store.Attempts(ctx, "published", record.Train, 2)
	require.NoError(t, err)
	require.Len(t, attempts, 8)
	for _, a := range attempts {
		require.Regexp(t, "^template:sha256:", a.Terms.Codec)
		calls, err := st.Store.Calls(ctx, a.Address)
		require.NoError(t, err)
		require.Len(t, calls, 2)
		require.Equal(t, 0, calls[1].Parent, "the second turn continues the tokens of the first")
		codec, err := st.Codecs.Named(a.Terms.Codec)
		require.NoError(t, err)
		require.Contains(t, codec.Text(calls[1].Prompt), "Go on.")
	}
	versions, err := st.Store.Versions(ctx, "published", "main")
	require.NoError(t, err)
	require.Len(t, versions, 3)
	require.NotEqual(t, versions[0].Weights, versions[2].Weights)
}
