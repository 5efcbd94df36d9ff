package agentlightning_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// sampler answers every request with "abc1", which is three letters out of four
// characters.
type sampler struct{}

func (sampler) Sample(context.Context, model.VersionID, model.DecodeRequest) (model.Completion, string, error) {
	codec := dialog.Compact()
	tokens := append(codec.Encode("abc1"), codec.Stop()[0])
	return model.Completion{Tokens: tokens, Logprobs: make([]float32, len(tokens)), Finish: "stop"}, "canned", nil
}

// Each agent runs as a command, with the worker's forwarder and a real gateway and store.
// Its reward and its call must be recorded.
func TestAgentsOfAgentLightningRunAsTheyAre(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 to run agents with")
	}
	adapter := filepath.Join("..", "..", "sdk", "python", "fulgurite_agl.py")
	for name, command := range map[string][]string{
		"1.0":               {python, "agent_v1.py"},
		"0.3, class":        {python, adapter, "agent_v03.py:Writer"},
		"0.3, function":     {python, adapter, "agent_v03:writer"},
		"0.3, module class": {python, adapter, "agent_v03:Writer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireReward(t, command)
		})
	}
}

func requireReward(t *testing.T, command []string) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	server := httptest.NewServer(gateway.New(gateway.Config{Journal: db, Sampler: sampler{}}))
	t.Cleanup(server.Close)
	forwarder, err := forwarder.New(t.Context(), func() string { return server.URL }, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, forwarder.Close(context.WithoutCancel(t.Context()))) })

	const key = "sk-test"
	sum := sha256.Sum256([]byte(key))
	rollout := record.RolloutID{Run: "lightning", Kind: record.Train, Step: 1}
	terms := record.Terms{Policy: "main", Codec: "compact", Temperature: 1, MaxTokens: 16, MaxCalls: 4}
	address, err := db.BeginAttempt(t.Context(), rollout, "t0", terms, hex.EncodeToString(sum[:]))
	require.NoError(t, err)
	session, err := forwarder.Open(t.Context(), address, key)
	require.NoError(t, err)
	defer session.Close()
	directory, err := filepath.Abs(".")
	require.NoError(t, err)
	result, err := agent.Command{Args: command, Scratch: t.TempDir()}.Launch(session.Context(), agent.Job{
		Address: address, Task: agent.Task{ID: "t0", Input: "say something", Metadata: map[string]any{"level": "easy"}},
		BaseURL: session.BaseURL(), Key: key, Directory: directory, Environment: map[string]string{"PYTHONDONTWRITEBYTECODE": "1"},
		Limits: agent.Limits{Time: time.Minute, OutputBytes: 1 << 20, MemoryBytes: 1 << 30},
	})
	require.NoError(t, err)
	require.False(t, result.Failed(), "%s: %s", result.Message, result.Stderr)
	rewards, err := db.Rewards(t.Context(), address)
	require.NoError(t, err)
	require.Equal(t, []record.Reward{{Address: address, Name: "final", Value: 0.75, Source: "agent"}}, rewards)
	calls, err := db.Calls(t.Context(), address)
	require.NoError(t, err)
	require.Len(t, calls, 1)
}
