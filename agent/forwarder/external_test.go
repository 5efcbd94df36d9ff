package forwarder_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/forwarder"
)

func openExternal(t *testing.T, f *forwarder.Forwarder) *forwarder.Session {
	t.Helper()
	s, err := f.OpenExternal(address("demo"), "key", time.Hour)
	require.NoError(t, err)
	return s
}

func TestExternalSessionStaysOpenUntilItIsClosed(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	f := newForwarder(t, g.at)
	s := openExternal(t, f)
	require.Equal(t, "an answer", ask(t.Context(), s, "a question").body)
	got, err := forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
	require.NoError(t, err)
	require.Equal(t, forwarder.SessionReport{}, got)
	require.Equal(t, http.StatusGone, ask(t.Context(), s, "another").status)
	_, err = forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
	require.ErrorContains(t, err, "404", "what it saw is known once")
	openExternal(t, f)
}

func TestOnlyTheKeyClosesAnExternalSession(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	f := newForwarder(t, g.at)
	s := openExternal(t, f)
	defer s.Close()
	for _, key := range []string{"", "another"} {
		_, err := forwarder.CloseExternal(t.Context(), s.BaseURL(), key, nil)
		require.ErrorContains(t, err, "404")
	}
	require.Equal(t, http.StatusOK, ask(t.Context(), s, "a question").status)
	other, err := f.Open(t.Context(), address("other"), "key")
	require.NoError(t, err)
	defer other.Close()
	_, err = forwarder.CloseExternal(t.Context(), other.BaseURL(), "", nil)
	require.ErrorContains(t, err, "404", "it is not external")
	require.Equal(t, http.StatusOK, ask(t.Context(), other, "a question").status)
}

func TestReportOfASessionSaysWhatTheAgentSaw(t *testing.T) {
	t.Parallel()
	refused := says(http.StatusBadRequest, `{"error":{"code":"call_limit"}}`)
	for name, c := range map[string]struct {
		replies []http.HandlerFunc
		asks    int
		check   func(forwarder.SessionReport) bool
	}{
		"a fault":  {[]http.HandlerFunc{says(http.StatusInternalServerError, "")}, 1, func(s forwarder.SessionReport) bool { return s.Fault != "" }},
		"a wait":   {[]http.HandlerFunc{faulty, says(http.StatusOK, "")}, 1, func(s forwarder.SessionReport) bool { return s.Waited > 0 && s.Fault == "" }},
		"a limit":  {[]http.HandlerFunc{refused}, 100, func(s forwarder.SessionReport) bool { return s.Failure == agent.CallLimit && s.Fault == "" }},
		"no limit": {[]http.HandlerFunc{refused}, 99, func(s forwarder.SessionReport) bool { return s.Fault == "" && s.Failure == "" && s.Waited == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openExternal(t, newForwarder(t, newGateway(t, c.replies...).at))
			for range c.asks {
				ask(t.Context(), s, "a question")
			}
			got, err := forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
			require.NoError(t, err)
			require.True(t, c.check(got), "%+v", got)
		})
	}
}

func TestSessionOfAWorkerThatIsGoneCanNotBeClosed(t *testing.T) {
	t.Parallel()
	f, err := forwarder.New(t.Context(), func() string { return "" }, zap.NewNop())
	require.NoError(t, err)
	s := openExternal(t, f)
	require.NoError(t, f.Close(context.Background()))
	_, err = forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
	require.Error(t, err)
}

func TestExternalSessionEndsByItself(t *testing.T) {
	t.Parallel()
	f := newForwarder(t, newGateway(t, silent).at)
	s, err := f.OpenExternal(address("demo"), "key", time.Millisecond)
	require.NoError(t, err)
	within(t, s.Context().Done())
	require.Eventually(t, func() bool {
		again, err := f.OpenExternal(address("demo"), "key", time.Hour)
		if err == nil {
			again.Close()
		}
		return err == nil
	}, testTimeout, time.Millisecond, "it is forgotten")
	_, err = forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded))
}
