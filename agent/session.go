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
	key       string // of the attempt
	lent      bool
	log       *zap.Logger
	ctx       context.Context
	cancel    context.CancelCauseFunc
	requests  sync.WaitGroup // those in flight; Add only while holding mu and not closed
	turns     chan struct{}  // holds one entry for each request that is read or forwarded

	mu       sync.Mutex
	expiry   *time.Timer // of a session that was lent, else nil
	closed   bool
	calls    int
	progress uint64
	taint    error
	inside   int           // requests under way
	left     time.Time     // when inside last came to 0
	refused  int           // replies that told of a limit on calls or tokens
	stalled  int           // requests that a fault holds up at the moment
	since    time.Time     // when the present stall began
	moved    time.Time     // when the last stall ended
	waited   time.Duration // what earlier stalls took together
}

func newSession(ctx context.Context, f *Forwarder, address trace.Address, key string) *Session {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Session{
		forwarder: f, address: address, key: key, ctx: ctx, cancel: cancel, turns: make(chan struct{}, mostAtOnce),
		log: f.log.With(zap.Stringer("attempt", address)), left: time.Now(),
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

// Context ends with the session: when it is closed, when the context that it was
// opened in ends, when the gateway says that the attempt is fenced (the cause wraps
// trace.ErrFenced), and when the agent asks for more although it has made all its
// calls. An agent launched in it then ends, too.
func (s *Session) Context() context.Context { return s.ctx }

// Idle is how long the agent has had no request under way.
func (s *Session) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside > 0 {
		return 0
	}
	return time.Since(s.left)
}

// Waited is how long at least one request of the agent has been held up by
// faults, up to now. A try that came to nothing counts from its beginning.
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

// Close breaks off what is in flight, requests that have not come whole too, and waits
// for it: closing is for when the agent has ended. That taints only if the gateway turns out to be gone, which
// takes some seconds to find out. Later requests are refused. Closing again does
// nothing.
func (s *Session) Close() {
	s.mu.Lock()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.mu.Unlock()
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
		if cause := context.Cause(s.ctx); !ended(cause) {
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
	s.inside++
	s.progress++
	return true
}

// ended reports whether a session's end is no fault: it was closed, or the agent
// went too far.
func ended(cause error) bool {
	var over *exceeded
	return errors.Is(cause, errSessionClosed) || errors.As(cause, &over)
}

func (s *Session) leave() {
	s.mu.Lock()
	s.inside--
	if s.inside == 0 {
		s.left = time.Now()
	}
	s.mu.Unlock()
	s.requests.Done()
}

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

// stall notes that a request has been held up since began. What is on account of
// earlier stalls doesn't count twice.
func (s *Session) stall(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.Before(s.moved) {
		began = s.moved
	}
	if s.stalled == 0 || began.Before(s.since) {
		s.since = began
	}
	s.stalled++
}

// resume ends a stall; an err says that there was no reply after it.
func (s *Session) resume(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled--
	if s.stalled == 0 {
		s.moved = time.Now()
		s.waited += s.moved.Sub(s.since)
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
