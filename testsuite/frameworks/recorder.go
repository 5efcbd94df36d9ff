package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
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

// attemptRecord is the record of one attempt at a walk.
type attemptRecord struct {
	exchanges []*exchange
	calls     []record.Exchange
	spans     []record.Span
}

// checkAnswered reports requests that failed.
func (a attemptRecord) checkAnswered() error {
	var all []error
	for _, x := range a.exchanges {
		if x.status != http.StatusOK {
			all = append(all, fmt.Errorf("refused: %s", x))
		}
	}
	return errors.Join(all...)
}

// checkRecord compares the record with the walk: each call is there, with its tokens.
func (a attemptRecord) checkRecord(w walk) error {
	var all []error
	if len(a.calls) != w.Calls {
		all = append(all, fmt.Errorf("%d calls are on record, want %d:%s", len(a.calls), w.Calls, a.requests()))
	}
	streams := 0
	for _, x := range a.exchanges {
		if x.stream {
			streams++
		}
	}
	if want := map[bool]int{true: w.Calls}[w.Stream]; streams != want {
		all = append(all, fmt.Errorf("%d of %d replies were event streams, want %d", streams, len(a.exchanges), want))
	}
	for _, c := range a.calls {
		switch {
		case apiOf(c) != w.API:
			all = append(all, fmt.Errorf("call %d came by %s, want %s", c.Seq, apiOf(c), w.API))
		case len(c.Prompt) == 0 || len(c.Completion) == 0 || len(c.Completion) != len(c.Logprobs):
			all = append(all, fmt.Errorf("call %d has %d tokens of prompt, %d of completion and %d log-probabilities", c.Seq, len(c.Prompt), len(c.Completion), len(c.Logprobs)))
		case c.ParseError != "":
			all = append(all, fmt.Errorf("call %d: %s", c.Seq, c.ParseError))
		}
	}
	if trained(a.calls) == 0 {
		all = append(all, errors.New("no token of it would be trained"))
	}
	return errors.Join(all...)
}

// requests returns the requests as readable text.
func (a attemptRecord) requests() string {
	var b bytes.Buffer
	for _, x := range a.exchanges {
		fmt.Fprintf(&b, "\n  %s %s by %s\n    %.3000s", x.method, x.path, x.client, x.request)
	}
	return b.String()
}

// apiOf names the API that a call came by.
func apiOf(c record.Exchange) string {
	if c.API == "" {
		return "chat"
	}
	return c.API
}

// checkReplay compares a second attempt with the first: it must have the same calls,
// from the record, and send the same bytes to the client.
func (a attemptRecord) checkReplay(second attemptRecord) error {
	first := map[string]record.Exchange{}
	for _, c := range a.calls {
		first[c.ID] = c
	}
	for _, c := range second.calls {
		f, there := first[c.ID]
		switch {
		case !there || c.ReplayedFrom != f.Attempt:
			return fmt.Errorf("call %d was sampled again: %s", c.Seq, c.Request)
		case !bytes.Equal(c.Response, f.Response):
			return fmt.Errorf("call %d is on record with two responses:\n  %s\n  %s", c.Seq, f.Response, c.Response)
		}
	}
	replies := map[string]int{}
	for _, x := range a.exchanges {
		replies[string(withoutComments(x.reply.Bytes()))]++
	}
	for _, x := range second.exchanges {
		if x.isExport() {
			continue // how many spans an exporter sends at once is chance
		}
		text := string(withoutComments(x.reply.Bytes()))
		if replies[text]--; replies[text] < 0 {
			return fmt.Errorf("another reply than the first: %s", x)
		}
	}
	return nil
}

// continuations counts the calls whose requests contain an earlier reply of the model,
// and of these the ones whose prompt begins with the exact tokens of an earlier call.
func (a attemptRecord) continuations() (all, exact int) {
	for _, c := range a.calls {
		r, err := wire.Decode(wire.API(apiOf(c)), c.Request)
		if err != nil {
			continue // it was answered, so it was read
		}
		said := slices.ContainsFunc(r.Dialog, func(m dialog.Message) bool { return m.Role == dialog.Assistant })
		if !said && r.Previous == "" {
			continue
		}
		all++
		if c.Parent >= 0 && !c.Drift {
			exact++
		}
	}
	return all, exact
}

// result is the outcome of an example, or of a part of it.
type result struct {
	calls   int
	trained int      // tokens that the loss sees
	remarks []string // figures, as readable text
	err     error
}

// with returns the combined result of two parts of the same example.
func (r result) with(part result) result {
	return result{
		calls: r.calls + part.calls, trained: r.trained + part.trained,
		remarks: append(r.remarks, part.remarks...), err: errors.Join(r.err, part.err),
	}
}

func (r result) print(out io.Writer, name string) {
	for _, remark := range r.remarks {
		_, _ = fmt.Fprintf(out, "  %s\n", remark)
	}
	if r.err != nil {
		_, _ = fmt.Fprintf(out, "%s: failed\n", name)
		return
	}
	_, _ = fmt.Fprintf(out, "%s: calls %d, trained tokens %d, ok\n", name, r.calls, r.trained)
}
