package forwarder_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

func TestForwarderPassesOnRequestsAndRepliesAsTheyAre(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "7")
		says(http.StatusTeapot, "an answer")(w, nil)
	})
	s := open(t, newForwarder(t, g.at))
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/r/demo/train-3/17/2/1/v1$`, s.BaseURL())
	require.Equal(t, reply{status: http.StatusTeapot, body: "an answer"}, ask(t.Context(), s, "a question"))
	got := within(t, g.asked)
	require.Equal(t, "a question", got.body)
	require.Equal(t, "/r/demo/train-3/17/2/1/v1/chat/completions?beta=true", got.request.RequestURI)
	require.Equal(t, "Bearer key", got.request.Header.Get("Authorization"))
	require.Empty(t, got.request.Header.Get(protocol.RetryHeader), "agents can't claim to be asking again")
	require.Equal(t, 1, s.Calls())
	require.False(t, s.Tainted(), "an error of the client's is no fault of ours")
	require.Zero(t, s.Waited())
}

// Some clients begin with HTTP/2, without asking for it first. Their requests share a
// connection.
func TestAnAgentMaySpeakHTTP2(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	s := open(t, newForwarder(t, g.at))
	var only http.Protocols
	only.SetUnencryptedHTTP2(true)
	client := http.Client{Transport: &http.Transport{Protocols: &only}}
	defer client.CloseIdleConnections()
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/chat/completions", strings.NewReader("a question"))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer key")
		response, err := client.Do(r)
		require.NoError(t, err)
		got, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, 2, response.ProtoMajor)
		require.Equal(t, "an answer", string(got))
		require.Equal(t, "a question", within(t, g.asked).body)
	}
	require.Equal(t, 3, s.Calls())
}

func TestAPathWithEmptySegmentsIsPassedOn(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	s := open(t, newForwarder(t, g.at))
	for _, path := range []string{"/r/demo/train-3/17/2/1/v1//chat/completions", "//r/demo/train-3/17/2/1//v1/chat/completions"} {
		u, err := url.Parse(s.BaseURL())
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+u.Host+path, strings.NewReader("a question"))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer key")
		response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		require.Equal(t, "/r/demo/train-3/17/2/1/v1/chat/completions", within(t, g.asked).request.RequestURI)
	}
}

func TestForwarderServesOpenSessionsOnly(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "never"))
	f := newForwarder(t, g.at)
	s := open(t, f)
	_, err := f.Open(t.Context(), address("demo"), "key")
	require.ErrorContains(t, err, "open already")

	status := func(path string) (int, string) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		var body struct {
			Error struct{ Message, Type, Code string }
		}
		require.NoError(t, json.NewDecoder(response.Body).Decode(&body))
		require.NotEmpty(t, body.Error.Message)
		require.Equal(t, "invalid_request_error", body.Error.Type)
		return response.StatusCode, body.Error.Code
	}
	for path, want := range map[string]int{
		"/v1/chat/completions":                                 http.StatusNotFound,
		"/r/demo/train-3/17/2":                                 http.StatusNotFound,
		"/r/demo/train-3/17/2/1/../2/v1/chat/completions":      http.StatusNotFound,
		"/r/demo/train-3/17/2/1/%2e%2e/2/v1/chat/completions":  http.StatusNotFound,
		"/r/demo/train-3/17/2/1/..%2f2/v1/chat/completions":    http.StatusNotFound,
		"/r/demo/train-3/17/2/2/v1/chat/completions":           http.StatusGone,
		"/r/another-run/train-3/17/2/1/v1/chat/completions":    http.StatusGone,
		"/r/demo/train-3/17/2/1e1/v1/chat/completions":         http.StatusNotFound,
		"/r/demo/train-3/17/2/2/v1/chat/completions?address=1": http.StatusGone,
	} {
		got, code := status(path)
		require.Equal(t, want, got, path)
		require.Contains(t, []string{"not_found", "attempt_closed"}, code)
	}
	s.Close()
	got, code := status("/r/demo/train-3/17/2/1/v1/chat/completions")
	require.Equal(t, http.StatusGone, got, "after it was closed")
	require.Equal(t, "attempt_closed", code)
	require.Empty(t, g.asked)
	_, err = f.Open(t.Context(), address("demo"), "key")
	require.NoError(t, err, "a closed session can be opened anew")
}

func TestRequestThatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "fine"))
	s := open(t, newForwarder(t, g.at))
	require.Equal(t, http.StatusOK, ask(t.Context(), s, strings.Repeat("x", 32<<20)).status)
	r := ask(t.Context(), s, strings.Repeat("x", 32<<20+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, r.status)
	require.Contains(t, r.body, `"code":"request_too_large"`)
	require.Equal(t, 1, s.Calls())
}

func TestAgentSeesAWaitAndNothingElseOfAFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]http.HandlerFunc{
		"declared":         faulty,
		"proxy":            says(http.StatusBadGateway, "<html>"),
		"unavailable":      says(http.StatusServiceUnavailable, ""),
		"proxy's timeout":  says(http.StatusGatewayTimeout, "<html>"),
		"no reply":         breaksOff,
		"half a reply":     breaksOffHalfway,
		"stream not begun": streams(closedAfter("!")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, fault, faulty, says(http.StatusOK, "an answer"))
			s := open(t, newForwarder(t, g.at))
			before := s.Progress()
			require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, ask(t.Context(), s, "a question"))
			for i, retry := range []string{"", "1", "2"} {
				got := within(t, g.asked)
				require.Equal(t, "a question", got.body, "try %d", i)
				require.Equal(t, retry, got.request.Header.Get(protocol.RetryHeader))
				require.Equal(t, retry, got.request.Header.Get("X-Stainless-Retry-Count"))
			}
			require.False(t, s.Tainted())
			require.Equal(t, 1, s.Calls())
			require.Positive(t, s.Waited())
			require.GreaterOrEqual(t, s.Progress(), before+4, "a request, two renewed tries, a reply")
		})
	}
}

func TestRetriesOfTheClientAndOfTheForwarderAddUp(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusTooManyRequests, "later"), faulty, says(http.StatusOK, "an answer"))
	s := open(t, newForwarder(t, g.at))
	for retries, want := range []reply{{status: http.StatusTooManyRequests, body: "later"}, {status: http.StatusOK, body: "an answer"}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/chat/completions", strings.NewReader("a question"))
		require.NoError(t, err)
		r.Close = true
		r.Header.Set("Authorization", "Bearer key")
		r.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(retries))
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, errors.Join(err, response.Body.Close()))
		require.Equal(t, want, reply{status: response.StatusCode, body: string(body)})
	}
	for _, header := range []string{"0", "1", "2"} {
		require.Equal(t, header, within(t, g.asked).request.Header.Get("X-Stainless-Retry-Count"))
	}
	require.False(t, s.Tainted())
}

func closedAfter(pieces ...string) <-chan string {
	c := make(chan string, len(pieces))
	for _, p := range pieces {
		c <- p
	}
	close(c)
	return c
}

func TestGatewayMayDieInTheMiddleOfACallAndComeBackElsewhere(t *testing.T) {
	t.Parallel()
	var at atomic.Pointer[string]
	lookups := make(chan struct{}, 1000)
	old := newGateway(t, silent)
	at.Store(&old.URL)
	s := open(t, newForwarder(t, func() string {
		select {
		case lookups <- struct{}{}:
		default:
		}
		return *at.Load()
	}))
	answer := asking(t.Context(), s, "a question")
	within(t, old.asked)
	within(t, lookups)
	old.CloseClientConnections() // killed
	_ = old.Listener.Close()
	within(t, lookups)
	within(t, lookups) // the forwarder has noticed that it is away
	nowhere := ""
	at.Store(&nowhere)
	within(t, lookups)
	require.True(t, s.Tainted(), "an agent that ended now would have given up on a call")

	restarted := newGateway(t, says(http.StatusOK, "an answer"))
	at.Store(&restarted.URL)
	require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, within(t, answer))
	require.Equal(t, "a question", within(t, restarted.asked).body)
	require.False(t, s.Tainted(), "it waited, and saw nothing")
}

func TestErrorOfTheGatewayItselfTaints(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusInternalServerError, "oh dear"))
	s := open(t, newForwarder(t, g.at))
	require.Equal(t, reply{status: http.StatusInternalServerError, body: "oh dear"}, ask(t.Context(), s, ""))
	require.ErrorContains(t, s.Fault(), "gateway answered 500")
}

func TestAgentThatLeavesByItselfIsNotTainted(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) { silent(w, r); close(left) })
	s := open(t, newForwarder(t, g.at))
	ctx, cancel := context.WithCancel(t.Context())
	answer := asking(ctx, s, "a question")
	within(t, g.asked)
	cancel()
	require.ErrorIs(t, within(t, answer).err, context.Canceled)
	within(t, left) // the gateway notices
	s.Close()
	require.NoError(t, s.Fault())
	require.Zero(t, s.Calls())
}

func TestAgentThatLosesPatienceWithAFaultIsTainted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, faulty)
	s := open(t, newForwarder(t, g.at))
	ctx, cancel := context.WithCancel(t.Context())
	answer := asking(ctx, s, "a question")
	within(t, g.asked)
	within(t, g.asked)
	require.True(t, s.Tainted())
	cancel()
	require.Error(t, within(t, answer).err)
	s.Close()
	require.True(t, s.Tainted())
}

func TestEndOfTheAttemptBreaksOffWhatIsInFlight(t *testing.T) {
	t.Parallel()
	g := newGateway(t, silent)
	f := newForwarder(t, g.at)

	s := open(t, f)
	answer := asking(t.Context(), s, "a question")
	within(t, g.asked)
	s.Close()
	require.Error(t, within(t, answer).err)
	require.False(t, s.Tainted(), "the agent had ended")

	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := f.Open(ctx, address("demo"), "key")
	require.NoError(t, err)
	answer = asking(t.Context(), s, "a question")
	within(t, g.asked)
	cancel(context.DeadlineExceeded)
	require.Error(t, within(t, answer).err)
	require.Equal(t, http.StatusGone, ask(t.Context(), s, "another").status)
	require.ErrorIs(t, s.Fault(), context.DeadlineExceeded)
	s.Close()
}

func TestForwarderDrainsBeforeItCloses(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		<-proceed
		says(http.StatusOK, "an answer")(w, r)
	})
	f, err := forwarder.New(t.Context(), g.at, zap.NewNop())
	require.NoError(t, err)
	s := open(t, f)
	answer := asking(t.Context(), s, "a question")
	within(t, g.asked)
	closed := make(chan error, 1)
	go func() { closed <- f.Close(context.Background()) }()
	close(proceed)
	require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, within(t, answer))
	require.NoError(t, within(t, closed))
	require.True(t, s.Tainted(), "its agent would find nobody")
	_, err = f.Open(t.Context(), address("other"), "key")
	require.ErrorContains(t, err, "forwarder closed")
	require.NoError(t, f.Close(context.Background()), "closing again does nothing")
}

func TestForwarderThatCannotDrainBreaksOffAndTaints(t *testing.T) {
	t.Parallel()
	g := newGateway(t, silent)
	f, err := forwarder.New(t.Context(), g.at, zap.NewNop())
	require.NoError(t, err)
	s := open(t, f)
	answer := asking(t.Context(), s, "a question")
	within(t, g.asked)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, f.Close(over), context.Canceled)
	require.Error(t, within(t, answer).err)
	require.ErrorContains(t, s.Fault(), "forwarder closed")
}

func TestSessionsOfOneForwarderKnowNothingOfEachOther(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusInternalServerError, ""), says(http.StatusOK, ""))
	f := newForwarder(t, g.at)
	s := open(t, f)
	other, err := f.Open(t.Context(), address("other"), "key")
	require.NoError(t, err)
	defer other.Close()
	ask(t.Context(), s, "")
	ask(t.Context(), other, "")
	ask(t.Context(), other, "")
	require.True(t, s.Tainted())
	require.False(t, other.Tainted())
	require.Equal(t, []int{1, 2}, []int{s.Calls(), other.Calls()})
	u, err := url.Parse(other.BaseURL())
	require.NoError(t, err)
	require.Equal(t, "/r/other/train-3/17/2/1/v1", u.Path)
}

func TestForwarderTellsExternalAgentsItsAddress(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	f, err := forwarder.New(t.Context(), g.at, zap.NewNop(), forwarder.At("localhost"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close(context.Background())) }()
	require.Regexp(t, `^http://localhost:\d+$`, f.URL())
	require.Equal(t, "an answer", ask(t.Context(), open(t, f), "a question").body)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(f.URL(), "http://"))
	require.NoError(t, err)
	_, err = forwarder.New(t.Context(), g.at, zap.NewNop(), forwarder.At("localhost:"+port))
	require.ErrorContains(t, err, "in use", "a port that is given is taken")
	_, err = forwarder.New(t.Context(), g.at, zap.NewNop(), forwarder.At(":9000"))
	require.ErrorContains(t, err, "names no host")
}
