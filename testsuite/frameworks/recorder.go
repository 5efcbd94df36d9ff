package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/internal/health"
)

// exchange is one request to the gateway and its reply.
type exchange struct {
	method, path string
	client       string // as it names itself
	status       int
	stream       bool
	request      []byte
	reply        bytes.Buffer
}

func (x *exchange) String() string {
	return fmt.Sprintf("%s %s: status %d\n  request %.4000s\n  reply %.2000s", x.method, x.path, x.status, x.request, x.reply.String())
}

// recorder records the exchanges with the gateway, except the probes of a forwarder, whose
// number depends on how fast the machine is.
type recorder struct {
	gateway http.Handler
	mu      sync.Mutex
	seen    []*exchange
}

// ServeHTTP implements http.Handler.
func (h *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == health.Path {
		h.gateway.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the forwarder is gone
	}
	x := &exchange{method: r.Method, path: r.URL.RequestURI(), client: r.UserAgent(), request: body}
	h.mu.Lock()
	h.seen = append(h.seen, x)
	h.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	h.gateway.ServeHTTP(&recordingWriter{ResponseWriter: w, recorder: h, exchange: x}, r)
}

// exchanges returns the exchanges so far.
func (h *recorder) exchanges() []*exchange {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*exchange(nil), h.seen...)
}

// recordingWriter writes a reply and records it.
type recordingWriter struct {
	http.ResponseWriter
	recorder *recorder
	exchange *exchange
}

// Unwrap gives http.ResponseController access to the other methods of the underlying
// writer.
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recordingWriter) WriteHeader(status int) {
	w.recorder.mu.Lock()
	w.exchange.status = status
	w.exchange.stream = strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
	w.recorder.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w *recordingWriter) Write(p []byte) (int, error) {
	if w.exchange.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.recorder.mu.Lock()
	w.exchange.reply.Write(p)
	w.recorder.mu.Unlock()
	return w.ResponseWriter.Write(p)
}
