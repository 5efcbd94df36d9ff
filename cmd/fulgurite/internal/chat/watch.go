package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
)

// callWatch notes the outcome of an agent's model calls in two places: between the
// forwarder and the gateway, and between the gateway and the sampler. A run waits for a
// sampler that fails; here the sampler's error is shown. The store records the refusals
// too, but neither their HTTP status nor the gateway's replies to its own faults.
type callWatch struct {
	sampler model.Sampler
	// broken receives the reason why a call could not be answered, if the agent is not at
	// fault.
	broken context.CancelCauseFunc

	mu       sync.Mutex
	calls    int
	refusals []string
}

// Sample implements model.Sampler.
func (w *callWatch) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	c, weights, err := w.sampler.Sample(ctx, v, r)
	refused := errors.Is(err, model.ErrPromptTooLong) || errors.Is(err, model.ErrRefused) || errors.Is(err, model.ErrForm)
	if err != nil && !refused && ctx.Err() == nil {
		w.broken(err)
	}
	return c, weights, err
}

// around notes which model calls h refuses.
func (w *callWatch) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !isModelCall(r) {
			h.ServeHTTP(rw, r)
			return
		}
		reply := &watchedReply{ResponseWriter: rw, status: http.StatusOK}
		h.ServeHTTP(reply, r)
		w.note(reply)
	})
}

func isModelCall(r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	for _, endpoint := range []string{"/completions", "/responses", "/messages"} {
		if strings.HasSuffix(r.URL.Path, endpoint) {
			return true
		}
	}
	return false
}

func (w *callWatch) note(r *watchedReply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if r.status < http.StatusBadRequest {
		return
	}
	w.refusals = append(w.refusals, fmt.Sprintf("%d %s: %s", r.status, http.StatusText(r.status), r.reason()))
	if r.status >= http.StatusInternalServerError {
		w.broken(errors.New("the model's call was answered with " + w.refusals[len(w.refusals)-1]))
	}
}

// String returns how many calls were refused and why the first of them was, or "" if
// there were none.
func (w *callWatch) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refusals) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of the agent's %s %s refused, the first with %s", len(w.refusals), readable.Count(w.calls, "model call"), readable.WasOrWere(len(w.refusals)), w.refusals[0])
}

// watchedReply keeps the status of a reply, and its body if it is not a success.
type watchedReply struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// Unwrap gives http.ResponseController access to the connection.
func (r *watchedReply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *watchedReply) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *watchedReply) Write(data []byte) (int, error) {
	if r.status >= http.StatusBadRequest {
		r.body.Write(data)
	}
	return r.ResponseWriter.Write(data)
}

// reason returns the message in the body. Errors of OpenAI's and of Anthropic's APIs both
// have one. It returns the whole body if there is no message.
func (r *watchedReply) reason() string {
	var body struct {
		Error struct{ Message string }
	}
	if err := json.Unmarshal(r.body.Bytes(), &body); err != nil || body.Error.Message == "" {
		return r.body.String()
	}
	return body.Error.Message
}
