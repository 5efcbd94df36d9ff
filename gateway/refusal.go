package gateway

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/gateway/inflight"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// refusalTimeout is how long a refused call waits to be counted before it is
// answered.
const refusalTimeout = 250 * time.Millisecond

// callError is an error of a call of an attempt, whose key was presented.
type callError struct {
	attempt *inflight.Attempt
	error
}

func (e *callError) Unwrap() error { return e.error }

// inCall is inAttempt for model calls, of which refused ones are counted.
func (g *Gateway) inCall(handle func(http.ResponseWriter, *http.Request, *inflight.Attempt) error) func(http.ResponseWriter, *http.Request) error {
	return g.inAttempt(func(w http.ResponseWriter, r *http.Request, a *inflight.Attempt) error {
		if err := handle(w, r, a); err != nil {
			return &callError{a, err}
		}
		return nil
	})
}

// counts reports whether f is a refusal of the call itself: not a fault of ours, which
// is asked again, not the end of the attempt, and not an error of a client that left.
func counts(r *http.Request, f *wire.Failure) bool {
	return f.Status < http.StatusInternalServerError && f.Code != protocol.CodeFenced && r.Context().Err() == nil
}

// countRefusal puts a refused call on record. A journal that is slow or away neither
// holds up the answer nor changes it. Whoever answers has to call wait afterwards.
func (g *Gateway) countRefusal(r *http.Request, address trace.Address, f *wire.Failure) (wait func()) {
	done := make(chan struct{})
	wait = inflight.GoSafely(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), inflight.RecordLimit)
		defer cancel()
		if err := g.config.Journal.AddRefusal(ctx, trace.Refusal{Address: address, Code: f.Code, Message: f.Message}); err != nil {
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
