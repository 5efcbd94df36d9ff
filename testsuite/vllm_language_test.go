package testsuite_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// languageModelVariable names the directory of a small language model (examples/smollm/fetch).
const languageModelVariable = "FULGURITE_TEST_LANGUAGE_MODEL"

// listing asks once and is rewarded for the commas of the reply, eight of them in full.
func listing(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	config := openai.DefaultConfig(env.Key)
	config.BaseURL = env.BaseURL
	reply, err := openai.NewClientWithConfig(config).CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model: env.Model, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Tell me about things that come in " + task.Input + "."}},
	})
	if err != nil {
		return "", err
	}
	said := reply.Choices[0].Message.Content
	return said, env.Reward(min(1, float64(strings.Count(said, ","))/8))
}

// TestARealVLLMServesALanguageModelThatLearns trains an adapter of a real language model with
// PyTorch while vLLM samples from the version before, so that adapters change under calls.
// vLLM is killed in the middle of the last step and started again. The reward rises.
func TestARealVLLMServesALanguageModelThatLearns(t *testing.T) {
	dir := os.Getenv(languageModelVariable)
	if dir == "" || os.Getenv(torch.EnvPython) == "" {
		t.Skipf("no %s or no %s", languageModelVariable, torch.EnvPython)
	}
	server := startRealVLLM(t, dir, 16)
	ctx := t.Context()
	const steps, tasks, samples = 3, 8, 8

	var second, third atomic.Int64
	restarted := make(chan error, 1)
	st := startWith(ctx, t, t.TempDir(), agent.Registry{"listing": func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		switch {
		case strings.Contains(env.BaseURL, "/train-2/") && second.Add(1) == 1:
			server.holds(ctx, "language-v1-") // the call then goes on with version 0, while the server has both adapters
		case strings.Contains(env.BaseURL, "/train-3/") && third.Add(1) == tasks*samples/2:
			server.kill()
			go func() { restarted <- server.start(context.WithoutCancel(ctx)) }()
		}
		return listing(ctx, task, env)
	}})
	defer func() { require.NoError(t, st.Close()) }()
	result, err := train(ctx, st, "language", spec.Spec{
		Model: spec.Model{Base: dir, Codec: "template", LoRA: &spec.LoRA{Rank: 8, Alpha: 16}, Engine: "torch"},
		Agent: spec.Agent{Func: "listing", Limits: spec.AgentLimits{Seconds: 4 * 3600}},
		Tasks: spec.Tasks{Train: "arithmetic:train:64", Gate: "arithmetic:gate:32", Test: "arithmetic:test:32"}, Grader: spec.Grader{Type: "agent"},
		Sampling: spec.Sampling{MaxTokens: 32, Server: &spec.Server{Type: spec.ServerVLLM, URLs: []string{server.url}, Model: servedModel, Directory: t.TempDir()}},
		Training: spec.Training{
			Steps: steps, TasksPerStep: tasks, SamplesPerTask: samples, Lag: servedLag, Minibatches: 4, Optimizer: spec.Optimizer{LearningRate: 2e-3},
		},
		Evaluation: spec.Evaluation{Every: steps, Samples: 2},
	}.WithDefaults())
	require.NoError(t, err)
	require.NoError(t, <-restarted)

	versions, err := st.Store.Versions(ctx, "language", "main")
	require.NoError(t, err)
	require.Len(t, versions, steps+1)
	for step := 1; step <= steps; step++ {
		sampledByVersion(ctx, t, st, record.RolloutID{Run: "language", Kind: record.Train, Step: step}, versions[max(0, step-1-servedLag)], tasks*samples, 1)
		t.Logf("step %d: mismatch %.3g, worst token %.3g", step, versions[step].Metrics["train/mismatch"], versions[step].Metrics["train/mismatch_max"])
	}
	t.Logf("test split: %.3f before, %.3f after %d steps (version %d)", result.Before.Mean, result.After.Mean, steps, result.Promoted)
	require.Equal(t, steps, result.Promoted, "it is better by the paired test of the gate split")
	require.Greater(t, result.After.Mean, result.Before.Mean)
	refusesWrongAdapters(ctx, t, st, server, versions[steps].VersionID)
}
