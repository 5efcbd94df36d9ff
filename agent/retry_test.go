package agent_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// answering returns a service that gives one answer.
func answering(t *testing.T, contentType, body string) agent.Service {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return agent.Service{URL: server.URL}
}

func returns(err error) agent.Func {
	return func(context.Context, agent.Task, agent.Env) (string, error) { return "6", err }
}

func TestEveryKindOfAgentCanAskForAnotherAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent  agent.Launcher
		reason string
	}{
		"a program":                    {agent.Command{Args: sh("echo 6; echo first >&2; echo 'the search is down' >&2; exit 75")}, "the search is down"},
		"a program that only prints":   {agent.Command{Args: sh("echo 'no sandbox'; exit 75")}, "no sandbox"},
		"a program without a word":     {agent.Command{Args: sh("exit 75")}, "exit code 75, without a reason on standard error"},
		"a service":                    {answering(t, "application/json", `{"retry": "the search is down"}`), "the search is down"},
		"a service with an old result": {answering(t, "", `{"result": "6", "reward": 1, "retry": "the search is down"}`), "the search is down"},
		"a function":                   {returns(fmt.Errorf("search: %w: status 503", agent.ErrRetry)), "search: try again: status 503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if command, ok := c.agent.(agent.Command); ok {
				command.Scratch = t.TempDir()
				c.agent = command
			}
			got, err := c.agent.Launch(t.Context(), job("demo"))
			require.NoError(t, err)
			require.Equal(t, []any{agent.Retry, c.reason, ""}, []any{got.Failure, got.Message, got.Text})
			require.Nil(t, got.Reward)
		})
	}
}

// An object of an agent's own that happens to have the key is a result.
func TestOnlyAReasonAsksForAnotherAttempt(t *testing.T) {
	t.Parallel()
	for body, asks := range map[string]bool{
		`{"retry": "the search is down"}`:              true,
		`{"retry": "down", "result": null}`:            true,
		`{"retry": ""}`:                                false,
		`{"retry": null, "result": "6"}`:               false,
		`{"retry": false, "result": "6"}`:              false,
		`{"retry": 3}`:                                 false,
		`{"retry": "daily", "answer": 6}`:              false,
		`"{\"retry\": \"a text that says the same\"}"`: false,
	} {
		require.Equal(t, asks, agent.ReadReply([]byte(body), 0).Failure == agent.Retry, body)
	}
}

func TestWhatComesAfterAnAttemptIsToldThatItDoesNotCount(t *testing.T) {
	t.Parallel()
	var seen record.Outcome
	h := agent.Hooks{After: func(_ context.Context, _ agent.Job, outcome record.Outcome) error {
		seen = outcome
		return nil
	}}
	_, err := agent.Around(returns(agent.ErrRetry), h, t.TempDir()).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, record.InfraFault, seen)
}
