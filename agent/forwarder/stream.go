package forwarder

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
)

// errOtherBytes says that the agent has part of a reply, and that the gateway does not
// continue it. Asking again would not help.
var errOtherBytes = errors.New("the gateway's reply differs from the one that the agent has in part")

// sentPrefix is the part of a streamed reply that an agent has: its events, complete and
// in order, without keepalives. A gateway's events depend only on the request and on the
// recorded call, so any gateway has the rest.
type sentPrefix struct {
	bytes  int64
	digest hash.Hash
}

func (p *sentPrefix) add(event []byte) {
	p.bytes += int64(len(event))
	_, _ = p.digest.Write(event) // never fails
}

// same reports whether both are the same bytes.
func (p *sentPrefix) same(other *sentPrefix) bool {
	return p.bytes == other.bytes && bytes.Equal(p.digest.Sum(nil), other.digest.Sum(nil))
}

// streaming is one try at a streamed reply.
type streaming struct {
	*request
	response   *http.Response
	received   *sentPrefix // the part of the reply that this try received
	catchingUp bool        // the agent has more of the reply than this try has received
	// errorEvent is held back until it is clear whether the reply ends with it or
	// breaks off.
	errorEvent []byte
}

// stream passes the reply on event by event, from where the agent has it.
// Keepalives are passed on in any case.
func (q *request) stream(response *http.Response) error {
	s := &streaming{request: q, response: response, received: &sentPrefix{digest: sha256.New()}, catchingUp: q.sent != nil}
	in := newEvents(response.Body)
	for {
		event, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return s.finish(event)
		case err != nil:
			return s.interrupted(err)
		}
		q.lastRead = time.Now()
		q.session.progressed()
		if err := s.handle(event); err != nil {
			return err
		}
	}
}

func (s *streaming) handle(event []byte) error {
	kind := protocol.KindOf(event)
	if kind == protocol.Keepalive {
		return s.write(event)
	}
	if err := s.relayError(); err != nil {
		return err
	}
	if kind == protocol.ErrorEvent {
		s.errorEvent = event
		return nil
	}
	return s.relay(event)
}

// relayError passes on the error event that was held back, if there is one. The gateway
// did not break off after it, so there is no fault that could be hidden.
func (s *streaming) relayError() error {
	event := s.errorEvent
	if event == nil {
		return nil
	}
	s.errorEvent = nil
	if err := s.session.noteRefusal(s.response.Header, protocol.EventData(event)); err != nil {
		return err
	}
	if !protocol.BlamesAgent(event) {
		s.session.taintBy(errFaultEvent)
	}
	return s.relay(event)
}

// relay passes an event on, unless the agent has it from an earlier try.
func (s *streaming) relay(event []byte) error {
	s.received.add(event)
	if !s.begin() {
		return errAgentLeft
	}
	switch {
	case !s.catchingUp:
		s.sent = s.received
		s.gotReply()
		return s.write(event)
	case s.received.bytes < s.sent.bytes:
		return nil
	case !s.received.same(s.sent):
		return errOtherBytes
	}
	s.catchingUp, s.sent = false, s.received
	s.gotReply()
	return nil
}

func (s *streaming) write(event []byte) error {
	if s.hasLeft() {
		return nil
	}
	if !s.headWritten {
		s.writeHead(s.response)
	}
	_, err := s.w.Write(event)
	if err = errors.Join(err, http.NewResponseController(s.w).Flush()); err == nil {
		return nil
	}
	if s.leave(); s.hasLeft() {
		return nil
	}
	return fmt.Errorf("%w: %w", errAgentLeft, err)
}

// finish ends a reply that arrived completely; rest is the text after its last event.
func (s *streaming) finish(rest []byte) error {
	if err := s.relayError(); err != nil {
		return err
	}
	if len(rest) > 0 {
		if err := s.relay(rest); err != nil {
			return err
		}
	}
	if s.catchingUp {
		return errOtherBytes
	}
	if !s.headWritten {
		s.writeHead(s.response)
	}
	return nil
}

// interrupted ends a try whose reply did not arrive completely. The reply is asked for
// again, and its error event is not shown. But if the same error event blames the agent a
// second time, the agent gets it.
func (s *streaming) interrupted(err error) error {
	if s.errorEvent != nil && protocol.BlamesAgent(s.errorEvent) && bytes.Equal(s.errorEvent, s.lastError) {
		return s.finish(nil)
	}
	s.lastError = s.errorEvent
	return fmt.Errorf("read stream: %w", err)
}

// errFaultEvent says that an error event in a stream reports a fault of ours.
var errFaultEvent = errors.New("the gateway reported a fault in a stream")

// events reads a stream of server-sent events.
type events struct{ in *bufio.Reader }

func newEvents(r io.Reader) events { return events{bufio.NewReaderSize(r, 32<<10)} }

// next returns the next event with the blank line that ends it. With io.EOF it returns
// the text after the last event. With any other error it returns nothing of an unfinished
// event.
func (e events) next() ([]byte, error) {
	var event []byte
	begun := 0 // where the current line begins
	for {
		piece, err := e.in.ReadSlice('\n')
		event = append(event, piece...)
		switch {
		case len(event) > replyBytes:
			return nil, fmt.Errorf("an event of more than %d bytes", replyBytes)
		case errors.Is(err, bufio.ErrBufferFull):
			continue // in the middle of a line
		case errors.Is(err, io.EOF):
			return event, io.EOF
		case err != nil:
			return nil, err
		case len(bytes.TrimRight(event[begun:], "\r\n")) == 0:
			return event, nil
		}
		begun = len(event)
	}
}
