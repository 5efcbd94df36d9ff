package activities_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// unfinished begins a model call under a key, promises a body and sends none. The
// connection stays open for as long as the test runs.
func (w *testEnv) unfinished(base, key string) {
	w.t.Helper()
	u, err := url.Parse(base)
	require.NoError(w.t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", u.Path, key)
	require.NoError(w.t, err)
	_, err = io.ReadFull(conn, make([]byte, len("HTTP/1.1 "))) // the request has been read: the server answers it or asks for the body
	require.NoError(w.t, err)
}

func TestAnAttemptEndsThoughSomebodyStoppedInMidBody(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"the agent": "", "a stranger": "sk-of-another-attempt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.start(w.spec())
			runner := w.runner(w.serve(w.gateway()), func(_ context.Context, _ agent.Task, env agent.Env) (string, error) {
				if key == "" {
					w.unfinished(env.BaseURL, env.Key)
				} else {
					w.unfinished(env.BaseURL, key)
				}
				return "42", nil
			})
			got, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 0))
			require.NoError(t, err)
			require.Equal(t, record.OutcomeCompleted, got.Outcome)
			require.InDelta(t, 1, *got.Reward, 0)
		})
	}
}

func TestAnAttemptElsewhereEndsThoughSomebodyStoppedInMidBody(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.externalSpec())
	runner := w.runner(w.serve(w.gateway()), nil)
	runner.Workers = workersOf{polled: true}
	b, end := w.beginAttempt(runner, rollout(0, 0))
	w.unfinished(b.Brief.BaseURL, b.Brief.APIKey)
	w.unfinished(b.Brief.BaseURL, "sk-of-another-attempt")
	end.Reply = `{"result": "42"}`
	got, err := do[activities.EndAttemptResult](t, runner.EndAttempt, end)
	require.NoError(t, err)
	require.Empty(t, got.Fault)
	require.Equal(t, record.OutcomeCompleted, got.Outcome)
}
