package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/wire"
)

// telling is a reply on its way out as a stream of events. What it writes beside its
// keepalives is a function of the request and of the calls that answer it, whether
// these are sampled meanwhile or on record.
type telling struct {
	*Gateway
	w       http.ResponseWriter
	order   *order
	stream  *wire.Stream
	written bool   // the client has seen the head of the reply
	said    bool   // and events
	pending []byte // events that are not written yet
	quiet   *time.Timer
}

// tell streams the reply of a request. Until something was written, an error is left
// to be explained; later, the stream ends with an event that tells of it, and the
// connection is broken off, for whoever resumes streams to ask again.
func (g *Gateway) tell(w http.ResponseWriter, r *http.Request, o *order, h host) error {
	t := &telling{Gateway: g, w: w, order: o, quiet: time.NewTimer(g.config.Keepalive)}
	defer t.quiet.Stop()
	for {
		err := t.once(r.Context(), h)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errAgain) && !t.said && r.Context().Err() == nil:
			continue
		case errors.Is(err, errAgain):
			err = fault(err)
		}
		if !t.written {
			return err
		}
		return t.breakOff(r, err)
	}
}

// errBrokenOff is an error that has been told to the client in its stream. What is
// left to do is to break the connection off.
var errBrokenOff = errors.New("the stream is broken off")

// breakOff ends a stream that can't be completed.
func (t *telling) breakOff(r *http.Request, err error) error {
	if r.Context().Err() == nil {
		t.pending = append(t.pending, t.stream.Fail(explain(t.order.request.API, err))...)
		_ = t.flush() // the broken connection says the rest
	}
	return fmt.Errorf("%w: %w", errBrokenOff, err)
}

// complain logs a fault of ours. A client that left can't be answered, and a call
// that it gave up is no fault.
func (g *Gateway) complain(r *http.Request, f *wire.Failure, err error) {
	if f.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		g.config.Log.Warn("request failed", zap.String("path", r.URL.Path), zap.Error(err))
	}
}

func (t *telling) once(ctx context.Context, h host) error {
	seats, err := h.board(ctx)
	if err != nil {
		return err
	}
	delivered := false
	defer func() { h.vacate(seats, delivered) }()
	t.stream = t.order.request.Open(seats[0].head(t.order))
	t.w.Header().Set("X-Request-Id", t.order.request.API.ReplyID(seats[0].head(t.order).ID))
	calls := make([]*call, len(seats))
	for i := range seats {
		if calls[i], err = t.follow(ctx, i, &seats[i]); err != nil {
			return err
		}
	}
	// All calls are on record: now the end may be told.
	t.begin()
	end, err := t.stream.End(t.order.reply(calls...))
	if err != nil {
		return fault(fmt.Errorf("end stream %s: %w", calls[0].id, err))
	}
	t.pending = append(t.pending, end...)
	there := ctx.Err() == nil
	err = t.flush()
	delivered = there && err == nil
	return nil
}

// follow tells one choice as its tokens come, and returns its call.
func (t *telling) follow(ctx context.Context, choice int, s *seat) (*call, error) {
	v := voice{telling: t, choice: choice, transcript: newTranscript(t.order)}
	for s.call == nil {
		var more <-chan struct{}
		if s.counted {
			var tokens []int32
			var logprobs []float32
			tokens, logprobs, more = s.flight.feed.since(len(v.transcript.tokens))
			v.say(tokens, logprobs)
			if err := t.flush(); err != nil {
				return nil, err
			}
		}
		select {
		case <-more:
		case <-t.quiet.C:
			if err := t.keepalive(); err != nil {
				return nil, err
			}
		case <-s.flight.done:
			if _, err := s.arrive(ctx); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for call: %w", ctx.Err())
		}
	}
	c, n := s.call, len(v.transcript.tokens)
	if n > len(c.completion) || !slices.Equal(v.transcript.tokens, c.completion[:n]) {
		return nil, fault(fmt.Errorf("call %s was recorded with other tokens", c.id))
	}
	v.say(c.completion[n:], c.logprobs[n:])
	return c, nil
}

// begin tells the beginning of the reply, once.
func (t *telling) begin() {
	if !t.said {
		t.pending = append(t.pending, t.stream.Begin()...)
		t.said = true
	}
}

func (t *telling) keepalive() error {
	t.pending = append(t.pending, t.stream.Keepalive()...)
	return t.flush()
}

// flush writes what is pending.
func (t *telling) flush() error {
	if len(t.pending) == 0 {
		return nil
	}
	if !t.written {
		t.written = true
		header := t.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
		header.Set("X-Accel-Buffering", "no") // proxies would hold events back
		t.w.WriteHeader(http.StatusOK)
	}
	err := hand(t.w, t.pending)
	t.pending = t.pending[:0]
	t.quiet.Reset(t.config.Keepalive)
	return err
}

// voice tells one choice of a reply.
type voice struct {
	*telling
	choice     int
	transcript *transcript
	heard      []int32   // tokens whose text was not told yet
	probable   []float32 // their log-probabilities
	begun      bool
}

// say takes the next tokens: one event for each that adds text.
func (v *voice) say(tokens []int32, logprobs []float32) {
	for i, token := range tokens {
		text := v.transcript.add(token)
		if v.order.request.Logprobs && v.order.length(tokens[i:i+1]) == 1 {
			v.heard, v.probable = append(v.heard, token), append(v.probable, logprobs[i])
		}
		if text == "" {
			continue
		}
		v.telling.begin()
		if thoughts := v.thoughts(); thoughts != "" {
			v.pending = append(v.pending, v.stream.Reasoning(v.choice, thoughts)...)
		}
		v.pending = append(v.pending, v.stream.Content(v.choice, text, v.order.probable(v.heard, v.probable))...)
		v.heard, v.probable = nil, nil
	}
}

// thoughts are told once, before the first text.
func (v *voice) thoughts() string {
	if v.begun {
		return ""
	}
	v.begun = true
	return v.transcript.thoughts()
}
