package gateway

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// refusalTimeout is how long the answer to a refused call waits for the journal to count
// the call.
const refusalTimeout = 250 * time.Millisecond

// callError is an error of a model call that presented the key of its attempt.
type callError struct {
	conversation *conversation.Conversation
	error
}

func (e *callError) Unwrap() error { return e.error }

// inCall is inAttempt for model calls; it also counts refused ones.
func (g *Gateway) inCall(handle attemptHandler) func(http.ResponseWriter, *http.Request) error {
	return g.inAttempt(func(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
		if err := handle(w, r, c); err != nil {
			return &callError{c, err}
		}
		return nil
	})
}

// counts reports whether f refuses the call itself. It is false for a fault of ours,
// after which the client asks again, for a call after the end of the attempt, and if the
// client has left.
func counts(r *http.Request, f *wire.Failure) bool {
	return f.Status < http.StatusInternalServerError && f.Code != protocol.CodeFenced && r.Context().Err() == nil
}

// countRefusal records a refused call. A slow or absent journal neither delays the answer
// beyond refusalTimeout nor changes it. The caller has to call wait after its answer.
func (g *Gateway) countRefusal(r *http.Request, address trace.Address, f *wire.Failure) (wait func()) {
	done := make(chan struct{})
	wait = conversation.GoSafely(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), conversation.RecordLimit)
		defer cancel()
		if err := g.config.Journal.AddRefusal(ctx, trace.Refusal{Address: address, Code: f.Code, Message: withField(f)}); err != nil {
			g.config.Log.Warn("refusal not recorded", zap.Stringer("rollout", address), zap.String("code", f.Code), zap.Error(err))
		}
	})
	timeout := time.NewTimer(refusalTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
	return wait
}

// withField returns the message of a failure with the field at fault, which most messages
// name themselves.
func withField(f *wire.Failure) string {
	if f.Param == "" || strings.Contains(f.Message, f.Param) {
		return f.Message
	}
	return f.Param + ": " + f.Message
}
