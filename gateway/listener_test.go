package gateway_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fulgurite/fulgurite/record"
)

// listener reads a stream as it is written. Each write is sent to received.
type listener struct {
	mu       sync.Mutex
	header   http.Header
	status   int
	body     bytes.Buffer
	received chan string
	broken   bool // the handler broke off
	ended    chan struct{}
}

func newListener() *listener {
	return &listener{header: http.Header{}, received: make(chan string, 4096), ended: make(chan struct{})}
}

func (l *listener) Header() http.Header { return l.header }
func (l *listener) WriteHeader(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = status
}
func (l *listener) Flush() {}

func (l *listener) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.received <- string(b)
	return l.body.Write(b)
}

func (l *listener) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.body.String()
}

// await returns when the stream contains what.
func (l *listener) await(t *testing.T, what string) {
	t.Helper()
	for !strings.Contains(l.String(), what) {
		select {
		case <-l.received:
		case <-l.ended:
			if !strings.Contains(l.String(), what) {
				t.Fatalf("the stream ended without %q: %s", what, l)
			}
			return
		case <-t.Context().Done():
			t.Fatalf("%q never came", what)
		}
	}
}

// listen sends a request of an attempt to a gateway and reads the reply in the
// background.
func listen(ctx context.Context, g http.Handler, a record.Address, path, body string, headers ...string) *listener {
	return listenAt(ctx, g, "/r/"+a.String()+path, body, headers...)
}

func listenAt(ctx context.Context, g http.Handler, path, body string, headers ...string) *listener {
	l := newListener()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	go func() {
		defer close(l.ended)
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				l.broken = true
			default:
				panic(p)
			}
		}()
		g.ServeHTTP(l, r)
	}()
	return l
}

// all returns the whole stream.
func (l *listener) all() string {
	<-l.ended
	return l.String()
}
