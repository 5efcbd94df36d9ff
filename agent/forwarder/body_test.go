package forwarder_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent/forwarder"
)

// socket is a client that sends any bytes over its connection.
type socket struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, f *forwarder.Forwarder) *socket {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &socket{t: t, conn: conn, in: bufio.NewReader(conn)}
}

// head returns the head of a request to the demo attempt whose body has 10 bytes.
func head(key string) string {
	return "POST /r/demo/train-3/17/2/1/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key +
		"\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n"
}

func (c *socket) send(text string) *socket {
	c.t.Helper()
	_, err := io.WriteString(c.conn, text)
	require.NoError(c.t, err)
	return c
}

// reply reads one reply, and fails if it does not come in time.
func (c *socket) reply() (status int, body string) {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	response, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, response.Body.Close())
	return response.StatusCode, string(text)
}

// closed waits until the forwarder has broken the connection off.
func (c *socket) closed() {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(testTimeout)))
	_, err := c.in.ReadByte()
	require.Error(c.t, err)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "the connection is still open")
}

// awaitRequests waits until the session has n requests more than before.
func awaitRequests(t *testing.T, s *forwarder.Session, n uint64) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Progress() >= n }, testTimeout, time.Millisecond)
}

func closes(s *forwarder.Session) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Close()
	}()
	return done
}

func TestWhoHasAnotherKeyTouchesNothingOfAnAttempt(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	f := newForwarder(t, g.at)
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := f.Open(ctx, address("demo"), "key")
	require.NoError(t, err)
	defer s.Close()
	idle := s.Idle()
	for name, request := range map[string]string{
		"another key":       head("another") + "0123456789",
		"no key":            strings.ReplaceAll(head("key"), "Authorization", "X-Other") + "0123456789",
		"part of it":        head("ke") + "0123456789",
		"another, no body":  head("another"), // the body never comes
		"another, trickles": head("another") + "0",
		"only of one API":   strings.ReplaceAll(head("key"), "Authorization: Bearer", "X-Api-Key: x") + "0123456789",
		"asks with nothing": "GET /r/demo/train-3/17/2/1/v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		status, body := dial(t, f).send(request).reply()
		require.Equal(t, http.StatusUnauthorized, status, name)
		require.Contains(t, body, `"code":"invalid_api_key"`, name)
	}
	require.Zero(t, s.Progress(), "no heartbeat is owed to a stranger")
	require.Greater(t, s.Idle(), idle, "nor is the agent busy")
	cancel(context.DeadlineExceeded) // the worker gives the attempt up
	status, _ := dial(t, f).send(head("another") + "0123456789").reply()
	require.Equal(t, http.StatusUnauthorized, status)
	require.False(t, s.Tainted(), "a stranger saw that, and not the agent")
	require.Empty(t, g.asked, "the gateway is left alone")
}

func TestRefusalsHaveTheShapeOfTheirAPI(t *testing.T) {
	t.Parallel()
	f := newForwarder(t, newGateway(t, says(http.StatusOK, "never")).at)
	open(t, f)
	for path, want := range map[string]int{"/r/demo/train-3/17/2/1": http.StatusUnauthorized, "/r/demo/train-3/17/2/9": http.StatusGone, "": http.StatusNotFound} {
		status, body := dial(t, f).send("POST " + path + "/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").reply()
		require.Equal(t, want, status)
		var got struct {
			Type  string
			Error struct{ Type, Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		require.Equal(t, "error", got.Type)
		require.NotEmpty(t, got.Error.Type)
		require.NotEmpty(t, got.Error.Message)
	}
}

func TestAKeyMayComeInTheHeaderOfAnthropicsClients(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	f := newForwarder(t, g.at)
	open(t, f)
	status, body := dial(t, f).send(strings.ReplaceAll(head("key"), "Authorization: Bearer", "X-Api-Key:") + "0123456789").reply()
	require.Equal(t, http.StatusOK, status, body)
}

// However a client stops, neither the session's end nor that of the forwarder waits
// for it.
func TestClientThatKeepsItsBodyToItselfHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"head only":         head("key"),
		"part of the body":  head("key") + "01234",
		"part of a chunk":   strings.ReplaceAll(head("key"), "Content-Length: 10", "Transfer-Encoding: chunked") + "a\r\n01234",
		"waits for a nod":   strings.ReplaceAll(head("key"), "Content-Length: 10", "Content-Length: 10\r\nExpect: 100-continue"),
		"of another length": strings.ReplaceAll(head("key"), "Content-Length: 10", "Content-Length: 33554432") + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, says(http.StatusOK, "never"))
			f := newForwarder(t, g.at)
			s := open(t, f)
			c := dial(t, f).send(sent)
			awaitRequests(t, s, 1)
			within(t, closes(s))
			if name == "waits for a nod" {
				status, _ := c.reply()
				require.Equal(t, http.StatusContinue, status)
			}
			c.closed()
			require.NoError(t, s.Fault(), "the agent's own doing")
			require.Empty(t, g.asked)
			again, err := f.Open(t.Context(), address("demo"), "key")
			require.NoError(t, err)
			again.Close()
		})
	}
}

func TestClientThatTricklesIsBrokenOffByTheEnd(t *testing.T) {
	t.Parallel()
	f := newForwarder(t, newGateway(t, says(http.StatusOK, "never")).at)
	s := open(t, f)
	c := dial(t, f).send(strings.ReplaceAll(head("key"), "Content-Length: 10", "Content-Length: 1000000"))
	awaitRequests(t, s, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for { // until the connection is broken off
			if _, err := io.WriteString(c.conn, "x"); err != nil {
				return
			}
		}
	}()
	within(t, closes(s))
	within(t, stopped)
	require.NoError(t, s.Fault())
}

func TestExternalSessionIsClosedWhateverItsClientsDo(t *testing.T) {
	t.Parallel()
	f := newForwarder(t, newGateway(t, says(http.StatusOK, "never")).at)
	s := openExternal(t, f)
	dial(t, f).send(head("key") + "01234")
	awaitRequests(t, s, 1)
	got, err := forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
	require.NoError(t, err)
	require.Equal(t, forwarder.SessionReport{}, got)
	// A request to close the session that never arrives completely does not delay it
	// either.
	openExternal(t, f)
	status, _ := dial(t, f).send("DELETE /r/demo/train-3/17/2/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key\r\nContent-Length: 10\r\n\r\n").reply()
	require.Equal(t, http.StatusOK, status)
}

func TestForwarderDoesNotWaitForBodiesWhenItCloses(t *testing.T) {
	t.Parallel()
	f, err := forwarder.New(t.Context(), newGateway(t, says(http.StatusOK, "never")).at, zap.NewNop())
	require.NoError(t, err)
	s := open(t, f)
	c := dial(t, f).send(head("key") + "01234")
	stranger := dial(t, f).send(head("another"))
	awaitRequests(t, s, 1)
	status, _ := stranger.reply()
	require.Equal(t, http.StatusUnauthorized, status)
	closed := make(chan error, 1)
	go func() { closed <- f.Close(context.Background()) }()
	require.NoError(t, within(t, closed), "it drained")
	c.closed()
	require.ErrorContains(t, s.Fault(), "forwarder closed", "the agent could see it")
}

// An agent may send many requests at once. Those beyond the limit wait, and take nothing
// from other attempts.
func TestRequestsBeyondTheConcurrentOnesWaitForASlot(t *testing.T) {
	t.Parallel()
	const most, more = 256, 8
	proceed := make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/r/demo/") {
			<-proceed
		}
		says(http.StatusOK, "an answer")(w, r)
	})
	f := newForwarder(t, g.at)
	s := open(t, f)
	other, err := f.Open(t.Context(), address("other"), "key")
	require.NoError(t, err)
	defer other.Close()
	answers := make(chan reply, most+more)
	for range most + more {
		go func() { answers <- ask(t.Context(), s, "a question") }()
	}
	for range most {
		within(t, g.asked)
	}
	awaitRequests(t, s, most+more)
	require.Empty(t, g.asked, "no more than that are under way")
	require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, ask(t.Context(), other, "a question"))
	close(proceed)
	for range most + more {
		require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, within(t, answers))
	}
	require.Equal(t, most+more, s.Calls())
	require.NoError(t, s.Fault())
}

func TestRequestsThatWaitAreBrokenOffByTheEnd(t *testing.T) {
	t.Parallel()
	const most = 256
	f := newForwarder(t, newGateway(t, says(http.StatusOK, "never")).at)
	s := open(t, f)
	for range most + 2 {
		dial(t, f).send(head("key") + "01234")
	}
	awaitRequests(t, s, most+2)
	within(t, closes(s))
	require.NoError(t, s.Fault())
	require.Zero(t, s.Calls())
}

func TestRequestsBeyondThoseThatMayWaitAreRefused(t *testing.T) {
	t.Parallel()
	f := newForwarder(t, newGateway(t, says(http.StatusOK, "never")).at)
	s := open(t, f)
	const most = 256 + 1024
	for range most {
		dial(t, f).send(head("key"))
	}
	awaitRequests(t, s, most)
	status, body := dial(t, f).send(head("key")).reply()
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, body, fmt.Sprint(most))
	require.NoError(t, s.Fault(), "the agent's own doing")
}
