package agent

import (
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

// errOtherBytes is for a reply that the agent has part of and that the gateway
// does not go on with. Asking again would not help.
var errOtherBytes = errors.New("the gateway's reply is not the one that the agent has part of")

// said is what an agent has got of a streamed reply: its events, whole and in
// order, but for keepalives. What a gateway says there depends on the request and
// on the recorded call alone, so that the rest can be had of any gateway.
type said struct {
	bytes  int64
	digest hash.Hash
}

func (s *said) add(event []byte) {
	s.bytes += int64(len(event))
	_, _ = s.digest.Write(event) // never fails
}

// same reports whether the same was said in both.
func (s *said) same(other *said) bool {
	return s.bytes == other.bytes && bytes.Equal(s.digest.Sum(nil), other.digest.Sum(nil))
}

// streaming is one try at a streamed reply.
type streaming struct {
	*exchange
	response *http.Response
	now      *said
	behind   bool // the agent has more of the reply than came of it in this try
	// complaint is an event that tells of an error. It is held back until it is
	// clear whether the reply ends with it or breaks off.
	complaint []byte
}

// stream passes the reply on event by event, from where the agent has it.
// Keepalives are passed on in any case.
func (x *exchange) stream(response *http.Response) error {
	s := &streaming{exchange: x, response: response, now: &said{digest: sha256.New()}, behind: x.said != nil}
	in := newEvents(response.Body)
	for {
		event, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return s.end(event)
		case err != nil:
			return s.brokenOff(err)
		}
		x.heard = time.Now()
		x.session.progressed()
		if err := s.take(event); err != nil {
			return err
		}
	}
}

func (s *streaming) take(event []byte) error {
	kind := protocol.KindOf(event)
	if kind == protocol.Keepalive {
		return s.write(event)
	}
	if err := s.release(); err != nil {
		return err
	}
	if kind == protocol.ErrorEvent {
		s.complaint = event
		return nil
	}
	return s.say(event)
}

// release hands out a complaint that is no sign of a fault to hide: the gateway
// did not break off after it.
func (s *streaming) release() error {
	event := s.complaint
	if event == nil {
		return nil
	}
	s.complaint = nil
	if err := s.session.heed(s.response.Header, protocol.EventData(event)); err != nil {
		return err
	}
	if !protocol.BlamesAgent(event) {
		s.session.visible(errComplained)
	}
	return s.say(event)
}

// say passes an event on, unless the agent has it from an earlier try.
func (s *streaming) say(event []byte) error {
	s.now.add(event)
	switch {
	case !s.behind:
		s.said = s.now
		s.flows()
		return s.write(event)
	case s.now.bytes < s.said.bytes:
		return nil
	case !s.now.same(s.said):
		return errOtherBytes
	}
	s.behind, s.said = false, s.now
	s.flows()
	return nil
}

func (s *streaming) write(event []byte) error {
	if !s.begun {
		s.head(s.response)
	}
	_, err := s.w.Write(event)
	if err = errors.Join(err, http.NewResponseController(s.w).Flush()); err != nil {
		return fmt.Errorf("%w: %w", errAgentLeft, err)
	}
	return nil
}

// end is for a reply that came whole; rest is what stands after its last event.
func (s *streaming) end(rest []byte) error {
	if err := s.release(); err != nil {
		return err
	}
	if len(rest) > 0 {
		if err := s.say(rest); err != nil {
			return err
		}
	}
	if s.behind {
		return errOtherBytes
	}
	if !s.begun {
		s.head(s.response)
	}
	return nil
}

// brokenOff is for a reply that did not. It is asked for again, and a complaint is
// not shown. But when the gateway blames the agent a second time, the agent is who
// has to hear it.
func (s *streaming) brokenOff(err error) error {
	if s.complaint != nil && protocol.BlamesAgent(s.complaint) && bytes.Equal(s.complaint, s.blamed) {
		return s.end(nil)
	}
	s.blamed = s.complaint
	return fmt.Errorf("read stream: %w", err)
}
