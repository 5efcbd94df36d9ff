package forwarder_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

func TestFencedAttemptEndsItsAgent(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusConflict, `{"error":{"message":"replaced","code":"attempt_fenced"}}`))
	s := open(t, newForwarder(t, g.at))
	agentOf := agent.Func(func(ctx context.Context, _ agent.Task, _ agent.Env) (string, error) {
		r := ask(ctx, s, "a question")
		<-ctx.Done()
		return r.body, nil
	})
	_, err := agentOf.Launch(s.Context(), agent.Job{Address: address("demo")})
	require.ErrorIs(t, err, record.ErrFenced)
	require.ErrorIs(t, s.Fault(), record.ErrFenced)
	require.Equal(t, http.StatusGone, ask(t.Context(), s, "another").status)
	require.Len(t, g.asked, 1, "the gateway is left alone")
}

func TestAConflictThatIsNoFenceIsTheAgentsOwn(t *testing.T) {
	t.Parallel()
	for _, body := range []string{`{"error":{"code":"conflict"}}`, "attempt_fenced", `{"error":"attempt_fenced"}`, "{"} {
		s := open(t, newForwarder(t, newGateway(t, says(http.StatusConflict, body)).at))
		require.Equal(t, reply{status: http.StatusConflict, body: body}, ask(t.Context(), s, ""))
		require.NoError(t, s.Context().Err())
		require.False(t, s.Tainted())
		s.Close()
	}
}

func TestAgentThatNeverStopsAskingIsEnded(t *testing.T) {
	t.Parallel()
	for _, limit := range []agent.Failure{agent.CallLimit, agent.TokenLimit} {
		t.Run(string(limit), func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, says(http.StatusOK, "the last answer"), says(http.StatusBadRequest, `{"error":{"code":"`+string(limit)+`"}}`))
			s := open(t, newForwarder(t, g.at))
			f := agent.Func(func(ctx context.Context, _ agent.Task, _ agent.Env) (string, error) {
				for ctx.Err() == nil {
					ask(ctx, s, "more")
				}
				return "never enough", nil
			})
			got, err := f.Launch(s.Context(), agent.Job{Address: address("demo")})
			require.NoError(t, err)
			require.Equal(t, agent.Result{Failure: limit, Message: "did not stop: 100 of its requests were refused"}, got)
			s.Close()
			require.NoError(t, s.Fault())
			require.Len(t, g.asked, 101)
		})
	}
}

func TestAgentIsIdleWhileItAsksForNothing(t *testing.T) {
	t.Parallel()
	g := newGateway(t, silent)
	s := open(t, newForwarder(t, g.at))
	before := s.Idle()
	require.Eventually(t, func() bool { return s.Idle() > before }, testTimeout, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	answer := asking(ctx, s, "a question")
	within(t, g.asked)
	require.Zero(t, s.Idle(), "a call is under way")
	cancel()
	within(t, answer)
	require.Eventually(t, func() bool { return s.Idle() > 0 }, testTimeout, time.Millisecond)
}
