package forwarder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
)

const (
	// bodyTimeout is how long a client may take to send the body of a request.
	bodyTimeout = time.Minute
	// refusalTimeout is how long the body of a refused request is still read. Its client
	// sends the body before it reads the refusal.
	refusalTimeout = time.Second
	// maxConcurrent is how many requests of one session are read and forwarded at a time.
	// It bounds the memory that one agent can fill with requests.
	maxConcurrent = 256
	// maxWaiting is how many more wait for a slot.
	maxWaiting = 1024
)

// errTooMany is for a request beyond those that may wait.
var errTooMany = errors.New("too many requests at once")

// acquireSlot waits until the session has a slot for a request. done releases the slot;
// it is nil after an error.
func (s *Session) acquireSlot(ctx context.Context) (done func(), err error) {
	s.mu.Lock()
	inFlight := s.inFlight
	s.mu.Unlock()
	if inFlight > maxConcurrent+maxWaiting {
		return nil, errTooMany
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-s.ctx.Done():
		return nil, s.brokenOff()
	case <-s.forwarder.closing.Done():
		s.taintBy(errForwarderClosed)
		return nil, errForwarderClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readBody reads the body of a request. It stops when the session or the forwarder ends,
// so that a client that does not send the rest delays neither. After an error the request
// has been answered, or no client is left to answer.
func (s *Session) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) // connections over TCP have deadlines
	cut := func() { _ = connection.SetReadDeadline(time.Now()) }
	bySession, byForwarder := context.AfterFunc(s.ctx, cut), context.AfterFunc(s.forwarder.closing, cut)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestBytes))
	over, closing := !bySession(), !byForwarder()
	var tooLarge *http.MaxBytesError
	switch {
	case closing && !over:
		s.taintBy(errForwarderClosed)
		return nil, errForwarderClosed
	case over:
		return nil, s.brokenOff()
	case errors.As(err, &tooLarge):
		refuse(w, r, http.StatusRequestEntityTooLarge, protocol.CodeTooLarge, fmt.Sprintf("a request may have %d bytes", requestBytes))
		return nil, errRefused
	case errors.Is(err, os.ErrDeadlineExceeded):
		refuse(w, r, http.StatusRequestTimeout, protocol.CodeTimeout, fmt.Sprintf("the body of the request did not come within %s", bodyTimeout))
		return nil, errRefused
	case err != nil:
		return nil, errAgentLeft
	}
	// After the body, a read only notices that the client leaves.
	_ = connection.SetReadDeadline(time.Time{})
	return body, nil
}

// brokenOff returns the error for a request that the session's end interrupts. If the
// session did not end regularly, the agent could have seen a fault, and brokenOff taints
// the session.
func (s *Session) brokenOff() error {
	cause := context.Cause(s.ctx)
	if !endedRegularly(cause) {
		s.taintBy(cause)
	}
	return cause
}
