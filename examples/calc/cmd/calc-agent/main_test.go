package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/record"
)

// The test binary is also the command, and the shim it runs under.
func TestMain(m *testing.M) {
	if os.Getenv("PLAY_CALC_AGENT") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const (
	callsTool = `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"any","choices":[{"index":0,"finish_reason":"tool_calls",
		"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1_0","type":"function",
		"function":{"name":"calculator","arguments":"{\"expression\":\"12+7*3\"}"}}]}}]}`
	answers = `{"id":"chatcmpl-2","object":"chat.completion","created":1,"model":"any","choices":[{"index":0,"finish_reason":"stop",
		"message":{"role":"assistant","content":"33"}}]}`
)

// TestCommandAndFunctionAskTheSame runs the agent in both ways through a
// forwarder, against a gateway that fails once in the middle.
func TestCommandAndFunctionAskTheSame(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	inProcess := agent.Func(func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		return calculator.Agent{Client: calculator.Connect(env.BaseURL, env.Key), Model: env.Model}.Solve(ctx, task.Input)
	})
	command := agent.Command{Args: []string{self}, Scratch: t.TempDir()}

	result, asked := rollout(t, inProcess)
	require.Equal(t, "33", result.Text)
	require.Len(t, asked, 3, "two calls, one of them asked again")
	require.Contains(t, asked[2], `"content":"33","tool_call_id":"call_1_0"`)
	again, askedAgain := rollout(t, command)
	require.Equal(t, "33", again.Text)
	require.Empty(t, cmp.Diff(asked, askedAgain))
}

// rollout runs one attempt and returns the requests that reached the gateway.
func rollout(t *testing.T, l agent.Launcher) (agent.Result, []string) {
	t.Helper()
	var asked []string
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		switch {
		case !strings.Contains(string(body), `"role":"tool"`):
			_, _ = io.WriteString(w, callsTool)
		case len(asked) == 2:
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, answers)
		}
	}))
	defer gateway.Close()
	gateway.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	forwarder, err := forwarder.New(t.Context(), func() string { return gateway.URL }, zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, forwarder.Close(t.Context())) }()
	address := record.Address{RolloutID: record.RolloutID{Run: "demo", Kind: record.Train, Step: 1}, Attempt: 1}
	session, err := forwarder.Open(t.Context(), address, "the-key")
	require.NoError(t, err)
	defer session.Close()
	result, err := l.Launch(t.Context(), agent.Job{
		Address: address, Task: agent.Task{ID: "t1", Input: "12+7*3"},
		BaseURL: session.BaseURL(), Key: "the-key",
		Environment: map[string]string{"PLAY_CALC_AGENT": "1", "CALC_MAX_TURNS": "2"},
	})
	require.NoError(t, err)
	require.False(t, session.Tainted())
	require.Equal(t, 2, session.Calls())
	return result, asked
}

func TestCommandSaysWhatItLacks(t *testing.T) {
	t.Setenv("OPENAI_BASE_URL", "")
	require.ErrorContains(t, run(t.Context(), strings.NewReader(`{"input":"1+1"}`), io.Discard), "OPENAI_BASE_URL is not set")
	require.ErrorContains(t, run(t.Context(), strings.NewReader(`1+1`), io.Discard), "read task")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
	t.Setenv("CALC_MAX_TURNS", "none")
	require.ErrorContains(t, run(t.Context(), strings.NewReader(`{"input":"1+1"}`), io.Discard), `CALC_MAX_TURNS is "none"`)
}
