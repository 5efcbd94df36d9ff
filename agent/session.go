package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/trace"
)

// Session is one attempt's use of a Forwarder, and what the forwarder knows
// about it. All methods are safe for concurrent use.
type Session struct {
	forwarder *Forwarder
	address   trace.Address
	log       *zap.Logger
	ctx       context.Context
	cancel    context.CancelCauseFunc
	requests  sync.WaitGroup // those in flight; Add only while holding mu and not closed

	mu       sync.Mutex
	closed   bool
	calls    int
	progress uint64
	taint    error
	stalled  int           // requests that a fault holds up at the moment
	since    time.Time     // when stalled last left 0
	waited   time.Duration // what earlier stalls took together
}

func newSession(ctx context.Context, f *Forwarder, address trace.Address) *Session {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Session{
		forwarder: f, address: address, ctx: ctx, cancel: cancel,
		log: f.log.With(zap.Stringer("attempt", address)),
	}
}

// BaseURL is what the agent is given as the address of its model:
// "http://127.0.0.1:port/r/<address>/v1".
func (s *Session) BaseURL() string {
	return s.forwarder.URL() + "/r/" + s.address.String() + "/v1"
}

// Calls counts the replies that the agent was given whole, of any kind.
func (s *Session) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Progress is a counter for heartbeats: it grows with each request, reply,
// piece of a streamed reply and renewed try, and stands still when the agent
// asks for nothing or the gateway says nothing.
func (s *Session) Progress() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}

// Waited is how long at least one request of the agent has been held up by
// faults, up to now.
func (s *Session) Waited() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled > 0 {
		return s.waited + time.Since(s.since)
	}
	return s.waited
}

// Tainted reports whether the agent could have seen a fault of ours, so that
// whatever it did afterwards says nothing about it.
func (s *Session) Tainted() bool { return s.Fault() != nil }

// Fault is the first fault that the agent could have seen, or nil. While a
// request is held up there is one: an agent that ends meanwhile has given up on
// it.
func (s *Session) Fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taint == nil && s.stalled > 0 {
		return errHeldUp
	}
	return s.taint
}

// Close breaks off what is in flight, without tainting, and waits for it:
// closing is for when the agent has ended. Later requests are refused. Closing
// again does nothing.
func (s *Session) Close() {
	s.end(errSessionClosed)
	s.requests.Wait()
	s.forwarder.forget(s)
}

func (s *Session) end(cause error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(cause)
}

func (s *Session) enter() bool {
	if s.ctx.Err() != nil {
		if cause := context.Cause(s.ctx); !errors.Is(cause, errSessionClosed) {
			s.visible(cause)
		}
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.requests.Add(1)
	s.progress++
	return true
}

func (s *Session) leave() { s.requests.Done() }

func (s *Session) progressed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress++
}

// delivered notes a reply that was written whole.
func (s *Session) delivered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.progress++
}

func (s *Session) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled == 0 {
		s.since = time.Now()
	}
	s.stalled++
}

// resume ends a stall; an err says that there was no reply after it.
func (s *Session) resume(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled--
	if s.stalled == 0 {
		s.waited += time.Since(s.since)
	}
	if err != nil {
		s.blame(err)
	}
}

// visible notes a fault that the agent could have seen.
func (s *Session) visible(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blame(fault)
}

func (s *Session) blame(fault error) {
	if s.taint == nil {
		s.taint = fmt.Errorf("fault in sight of the agent: %w", fault)
		s.log.Warn("attempt tainted", zap.Error(fault))
	}
}
