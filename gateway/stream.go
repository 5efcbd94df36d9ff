package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/wire"
)

// flushInterval is the least time between two writes to a stream, except for its end.
// Tokens that come sooner are written together: clients read no faster, and writes are
// most of the cost of a streamed call.
const flushInterval = 10 * time.Millisecond

// streamWriter writes a reply as a stream of events. Apart from keepalives, its bytes are
// a function of the request and of the calls that answer it, whether these are being
// sampled or on record.
type streamWriter struct {
	*Gateway
	w       http.ResponseWriter
	request *conversation.Request
	stream  *wire.Stream
	written bool   // the client has the head of the reply
	begun   bool   // there are events, written or pending
	read    bool   // the client has events
	pending []byte // events that are not written yet
	flushed time.Time
	silence *time.Timer
}

// stream streams the reply of a request. It returns an error if nothing was written yet;
// later, it ends the stream with an event that reports the error, and breaks the
// connection, so that the forwarder asks again.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, request *conversation.Request, calls conversation.Calls) error {
	s := &streamWriter{Gateway: g, w: w, request: request, silence: time.NewTimer(g.config.Keepalive)}
	defer s.silence.Stop()
	for {
		err := s.once(r.Context(), calls)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, conversation.ErrAgain) && !s.begun && r.Context().Err() == nil:
			continue
		case errors.Is(err, conversation.ErrAgain):
			err = fault(err)
		}
		if !s.written {
			return err
		}
		return s.breakOff(r, err)
	}
}

// errBrokenOff is an error that the stream has already reported to the client. What
// remains is to break the connection.
var errBrokenOff = errors.New("the stream is broken off")

// breakOff ends a stream that can't be completed.
func (s *streamWriter) breakOff(r *http.Request, err error) error {
	if r.Context().Err() == nil {
		s.pending = append(s.pending, s.stream.Fail(explain(s.request.API, err))...)
		_ = s.flush() // an error changes nothing: the connection breaks anyway
	}
	return fmt.Errorf("%w: %w", errBrokenOff, err)
}

// logFault logs a fault of ours. A client that left can't be answered, and its call is no
// fault.
func (g *Gateway) logFault(r *http.Request, f *wire.Failure, err error) {
	if f.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		g.config.Log.Warn("request failed", zap.String("path", r.URL.Path), zap.Error(err))
	}
}

func (s *streamWriter) once(ctx context.Context, h conversation.Calls) error {
	slots, err := h.Admit(ctx)
	if err != nil {
		return err
	}
	whole := false
	defer func() { h.Release(slots, s.delivery(whole)) }()
	head := slots[0].Head(s.request)
	s.stream = s.request.Open(head)
	s.w.Header().Set("X-Request-Id", s.request.API.ReplyID(head.ID))
	calls := make([]*conversation.Call, len(slots))
	for i := range slots {
		if calls[i], err = s.follow(ctx, i, &slots[i]); err != nil {
			return err
		}
	}
	// All calls are on record: now the end may be written.
	s.begin()
	end, err := s.stream.End(s.request.Reply(calls...))
	if err != nil {
		return fault(fmt.Errorf("end stream %s: %w", calls[0].ID, err))
	}
	s.pending = append(s.pending, end...)
	connected := ctx.Err() == nil
	err = s.flush()
	whole = connected && err == nil
	return nil
}

func (s *streamWriter) delivery(whole bool) conversation.Delivery {
	switch {
	case whole:
		return conversation.Whole
	case s.read:
		return conversation.Part
	}
	return conversation.Nothing
}

// follow writes one choice as its tokens come, and returns its call.
func (s *streamWriter) follow(ctx context.Context, choice int, slot *conversation.Slot) (*conversation.Call, error) {
	c := choiceWriter{streamWriter: s, choice: choice, transcript: conversation.NewTranscript(s.request)}
	for slot.Call() == nil {
		tokens, logprobs, more := slot.Since(len(c.transcript.Tokens()))
		c.write(tokens, logprobs)
		var due <-chan time.Time
		if left := flushInterval - time.Since(s.flushed); left > 0 && len(s.pending) > 0 {
			more, due = nil, time.After(left)
		} else if err := s.flush(); err != nil {
			return nil, err
		}
		select {
		case <-more:
		case <-due:
		case <-s.silence.C:
			if err := s.keepalive(); err != nil {
				return nil, err
			}
		case <-slot.Done():
			if _, err := slot.Wait(ctx); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for call: %w", ctx.Err())
		}
	}
	call, written := slot.Call(), c.transcript.Tokens()
	n := len(written)
	if n > len(call.Completion) || !slices.Equal(written, call.Completion[:n]) {
		return nil, fault(fmt.Errorf("call %s was recorded with other tokens", call.ID))
	}
	c.write(call.Completion[n:], call.Logprobs[n:])
	return call, nil
}

// begin writes the beginning of the reply, once.
func (s *streamWriter) begin() {
	if !s.begun {
		s.pending = append(s.pending, s.stream.Begin()...)
		s.begun = true
	}
}

func (s *streamWriter) keepalive() error {
	s.pending = append(s.pending, s.stream.Keepalive()...)
	return s.flush()
}

// flush sends what is pending.
func (s *streamWriter) flush() error {
	if len(s.pending) == 0 {
		return nil
	}
	if !s.written {
		s.written = true
		header := s.w.Header()
		header.Set("Content-Type", "text/event-stream")
		header.Set("Cache-Control", "no-cache")
		header.Set("X-Accel-Buffering", "no") // proxies would delay events
		s.w.WriteHeader(http.StatusOK)
	}
	err := writeFlushed(s.w, s.pending)
	s.pending = s.pending[:0]
	s.read = s.read || s.begun && err == nil
	s.flushed = time.Now()
	s.silence.Reset(s.config.Keepalive)
	return err
}

// choiceWriter writes one choice of a reply.
type choiceWriter struct {
	*streamWriter
	choice     int
	transcript *conversation.Transcript
	tokens     []int32   // not yet written as text
	logprobs   []float32 // of these tokens
	reasoned   bool      // the reasoning was written
}

// write writes the next tokens: one event for each that adds text.
func (c *choiceWriter) write(tokens []int32, logprobs []float32) {
	for i, token := range tokens {
		text := c.transcript.Add(token)
		if c.request.Logprobs && c.request.Length(tokens[i:i+1]) == 1 {
			c.tokens, c.logprobs = append(c.tokens, token), append(c.logprobs, logprobs[i])
		}
		if text == "" {
			continue
		}
		c.begin()
		if !c.reasoned {
			c.reasoned = true
			c.pending = append(c.pending, c.stream.Reasoning(c.choice, c.transcript.Reasoning())...)
		}
		c.pending = append(c.pending, c.stream.Content(c.choice, text, c.request.TokensOf(c.tokens, c.logprobs))...)
		c.tokens, c.logprobs = nil, nil
	}
}
