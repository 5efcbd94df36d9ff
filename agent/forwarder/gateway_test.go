package forwarder_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// asked is a request as the gateway got it.
type asked struct {
	request *http.Request
	body    string
}

// gateway is a server in the gateway's place. It gives one reply after another, and
// repeats the last one.
type gateway struct {
	*httptest.Server
	probed func()      // if not nil, called when it is asked for its health
	dead   atomic.Bool // it doesn't say that it is healthy
	asked  chan asked  // one entry for each request, before it is answered
}

func newGateway(t *testing.T, replies ...http.HandlerFunc) *gateway {
	t.Helper()
	g := &gateway{asked: make(chan asked, 1000)}
	var next atomic.Int64
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			if g.probed != nil {
				g.probed()
			}
			if g.dead.Load() {
				silent(w, r)
			}
			return
		}
		body, _ := io.ReadAll(r.Body)
		g.asked <- asked{request: r, body: string(body)}
		replies[min(int(next.Add(1)), len(replies))-1](w, r)
	}))
	g.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) at() string { return g.URL }

// The replies that a gateway plays.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func faulty(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(protocol.FaultHeader, "infrastructure")
	w.WriteHeader(http.StatusServiceUnavailable)
}

func breaksOff(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func breaksOffHalfway(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "only half of wh")
	panic(http.ErrAbortHandler)
}

// silent gives no answer, and waits until its client leaves.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// streams sends a piece for each entry of the channel and breaks off after "!".
func streams(pieces <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for piece := range pieces {
			if piece == "!" {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func newForwarder(t *testing.T, target func() string) *forwarder.Forwarder {
	t.Helper()
	f, err := forwarder.New(t.Context(), target, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		require.NoError(t, f.Close(ctx))
	})
	return f
}

func open(t *testing.T, f *forwarder.Forwarder) *forwarder.Session {
	t.Helper()
	s, err := f.Open(t.Context(), address("demo"), "key")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// reply is what an agent got.
type reply struct {
	status int
	body   string
	err    error
}

// ask asks as an agent would.
func ask(ctx context.Context, s *forwarder.Session, body string) reply {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL()+"/chat/completions?beta=true", strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	r.Header.Set("Authorization", "Bearer key")
	r.Header.Set("X-Fulgurite-Retry", "99")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	return reply{status: response.StatusCode, body: string(got), err: err}
}

func asking(ctx context.Context, s *forwarder.Session, body string) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- ask(ctx, s, body) }()
	return c
}

// listen reads a streamed reply line by line into a channel, closed at its end.
func listen(t *testing.T, s *forwarder.Session) (lines <-chan string, end <-chan error) {
	t.Helper()
	l, e := make(chan string), make(chan error, 1)
	go func() {
		defer close(l)
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testTimeout}
		r, err := http.NewRequest(http.MethodPost, s.BaseURL()+"/chat/completions", strings.NewReader(`{"stream":true}`))
		if err != nil {
			e <- err
			return
		}
		r.Header.Set("X-Api-Key", "key")
		response, err := client.Do(r)
		if err != nil {
			e <- err
			return
		}
		defer func() { _ = response.Body.Close() }()
		in := bufio.NewScanner(response.Body)
		for in.Scan() {
			l <- in.Text()
		}
		e <- in.Err()
	}()
	return l, e
}

// within fails a test that would hang.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testTimeout):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}
