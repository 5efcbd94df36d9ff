package gateway_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
)

func packed(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(body))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func small(c *gateway.Config) { c.BodyBytes = 1000 }

func TestRequestsMayBePacked(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil)
		a := s.send(t, p, packed(t, p.asking("q", "")), "Content-Encoding", "gzip")
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.JSONEq(t, p.asking("q", ""), string(s.recorded(t)[0].Request))
		a = s.send(t, p, "not packed", "Content-Encoding", "gzip")
		require.Equal(t, http.StatusBadRequest, a.status)
		a = s.send(t, p, packed(t, p.asking("q", ""))[:20], "Content-Encoding", "gzip")
		require.Equal(t, http.StatusBadRequest, a.status)
		a = s.send(t, p, p.asking("q", ""), "Content-Encoding", "br")
		require.Equal(t, http.StatusUnsupportedMediaType, a.status)
		require.Contains(t, a.body, "gzip")
	})
}

func TestRequestsThatAreTooLargeAreRefusedInTheShapeOfTheirAPI(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil, small)
		body := p.asking(strings.Repeat("a", 1000), "")
		for _, a := range []answer{s.send(t, p, body), s.send(t, p, packed(t, body), "Content-Encoding", "gzip")} {
			require.Equal(t, http.StatusRequestEntityTooLarge, a.status)
			if p.end == "message_stop" {
				require.Equal(t, "request_too_large", textAt(object(t, a.body), "error", "type"))
			} else {
				requireRefusal(t, a, http.StatusRequestEntityTooLarge, "request_too_large", "")
			}
		}
		require.Equal(t, http.StatusOK, s.send(t, p, p.asking("q", "")).status)
	})
}

// endless is a body whose end must not be read.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	if e.read > 1<<20 {
		return 0, errors.New("somebody reads it all")
	}
	return copy(b, strings.Repeat(" ", len(b))), nil
}

func TestARequestThatIsTooLargeIsNotReadToItsEnd(t *testing.T) {
	t.Parallel()
	s := newUnservedEnv(nil, small)
	for _, announced := range []int64{-1, 1 << 40} {
		body := &endless{}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/r/"+address.String()+"/v1/chat/completions", body)
		r.Header.Set("Authorization", "Bearer "+key)
		r.ContentLength = announced
		w := httptest.NewRecorder()
		gateway.New(s.config).ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
		if announced > 0 {
			require.Zero(t, body.read)
		}
	}
}

func TestAClientThatLeavesInTheMiddleOfItsRequestIsNoFault(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	u, err := url.Parse(s.url)
	require.NoError(t, err)
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", u.Host)
	require.NoError(t, err)
	_, err = fmt.Fprintf(c, "POST /r/%s/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", address, key)
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	reply, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(reply), "400 Bad Request")
	require.Contains(t, string(reply), "invalid_body")
	require.NoError(t, c.Close())
	require.Empty(t, s.requests())
}

// deadlines is a connection that counts the deadlines that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	set     int
	pending bool
}

func TestAClientHasToGoOnWithItsRequest(t *testing.T) {
	t.Parallel()
	s := newUnservedEnv(nil)
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	gateway.New(s.config).ServeHTTP(w, chatRequest(t.Context(), ask("a")))
	require.Equal(t, http.StatusOK, w.Code)
	require.Positive(t, w.set, "each piece has its time")
	require.False(t, w.pending, "none is left for when the client only waits")

	r := chatRequest(t.Context(), "")
	r.Body = io.NopCloser(timedOut{})
	w = &deadlines{ResponseRecorder: httptest.NewRecorder()}
	gateway.New(s.config).ServeHTTP(w, r)
	requireRefusal(t, answer{w.Code, w.Header(), w.Body.String()}, http.StatusRequestTimeout, "request_timeout", "")
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set++
	d.pending = !at.IsZero()
	return nil
}

// timedOut is a body that does not go on.
type timedOut struct{}

func (timedOut) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }
