package forwarder

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/record"
)

// Session is one attempt's use of a Forwarder, and its record of faults. All methods are
// safe for concurrent use.
type Session struct {
	forwarder *Forwarder
	address   record.Address
	key       string // of the attempt
	external  bool   // see OpenExternal
	log       *zap.Logger
	parent    context.Context // in which the session was opened
	ctx       context.Context
	cancel    context.CancelCauseFunc
	requests  sync.WaitGroup // requests in flight; Add only while holding mu and not closed
	slots     chan struct{}  // one entry for each request that is read or forwarded

	mu            sync.Mutex
	expiry        *time.Timer           // of an external session, else nil
	closedStreams map[*request]struct{} // whose agent has left, and which are read to their end
	partlyRead    []string              // see PartlyRead
	closed        bool
	calls         int
	progress      uint64
	taint         error
	inFlight      int       // requests
	idleSince     time.Time // when inFlight last came to 0
	refusals      int       // replies that refused a call because of a limit on calls or tokens
	stalled       int       // requests that a fault holds up at the moment
	stallBegan    time.Time // of the present stall
	lastStallEnd  time.Time
	stalledBefore time.Duration // the total of earlier stalls
}

func newSession(ctx context.Context, f *Forwarder, address record.Address, key string) *Session {
	parent := ctx
	ctx, cancel := context.WithCancelCause(parent)
	return &Session{
		forwarder: f, address: address, key: key, parent: parent, ctx: ctx, cancel: cancel, slots: make(chan struct{}, maxConcurrent),
		closedStreams: map[*request]struct{}{},
		log:           f.log.With(zap.Stringer("attempt", address)), idleSince: time.Now(),
	}
}

// BaseURL returns the address of the model for the agent:
// "http://127.0.0.1:port/r/<address>/v1". An external agent gets the one for other machines,
// and every other agent one without TLS.
func (s *Session) BaseURL() string {
	if s.external {
		return s.ServiceURL()
	}
	return "http://" + s.forwarder.local + s.path()
}

// ServiceURL returns the address of the model for an agent that is a service: this process
// asks it, but it may be on another machine.
func (s *Session) ServiceURL() string { return s.forwarder.URL() + s.path() }

func (s *Session) path() string { return "/r/" + s.address.String() + "/v1" }

// Calls returns how many replies, of any kind, the agent has got completely.
func (s *Session) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Progress returns a counter for heartbeats. It grows with each request, reply, piece of
// a streamed reply and repeated try. It stands still when the agent asks for nothing or
// the gateway sends nothing.
func (s *Session) Progress() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress
}

// Context returns a context that ends with the session: when it is closed, when the
// context that it was opened in ends, when the gateway says that the attempt is fenced
// (the cause wraps record.ErrFenced), and when the agent asks for more although it has
// made all its calls. An agent that was launched in it then ends, too.
func (s *Session) Context() context.Context { return s.ctx }

// Idle returns how long the agent has had no request under way.
func (s *Session) Idle() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight > 0 {
		return 0
	}
	return time.Since(s.idleSince)
}

// Waited returns how long at least one request of the agent has been held up by faults,
// up to now. A failed try counts from its beginning.
func (s *Session) Waited() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stalled > 0 {
		return s.stalledBefore + time.Since(s.stallBegan)
	}
	return s.stalledBefore
}

// Tainted reports whether the agent could have seen a fault of ours, so that
// whatever it did afterwards says nothing about it.
func (s *Session) Tainted() bool { return s.Fault() != nil }

// Fault returns the first fault that the agent could have seen, or nil. A request that
// waits for the gateway counts as a fault: an agent that ends meanwhile has given up on
// it.
func (s *Session) Fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taint == nil && s.stalled > 0 {
		return errHeldUp
	}
	return s.taint
}

// PartlyRead returns the names of the requests whose streamed reply the agent closed
// after it had begun to read it. They are all complete once the session is closed.
func (s *Session) PartlyRead() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.partlyRead)
}

func (s *Session) readPart(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partlyRead = append(s.partlyRead, name)
}

func (s *Session) addClosed(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closedStreams[q] = struct{}{}
}

func (s *Session) removeClosed(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.closedStreams, q)
}

// closedStream returns a stream that is read without its agent, or nil.
func (s *Session) closedStream() *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	for q := range s.closedStreams {
		return q
	}
	return nil
}

// awaitClosed waits until each stream that the agent has closed is on record. So it does
// not matter when the agent closed it, neither for the dialog that the next request
// continues nor for the tokens that are left to the attempt.
func (s *Session) awaitClosed(ctx context.Context) error {
	for q := s.closedStream(); q != nil; q = s.closedStream() {
		select {
		case <-q.ended:
		case <-s.ctx.Done():
			return s.brokenOff()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close interrupts requests in flight, including incomplete ones, and waits for them. It
// reads streams that the agent has begun to read to their end, so that their calls are on
// record. Call it when the agent has ended. It taints the session only if the gateway
// turns out to be gone, which takes some seconds to find out. Later requests are refused.
// Closing again does nothing.
func (s *Session) Close() {
	s.mu.Lock()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.mu.Unlock()
	s.end(errSessionClosed)
	s.requests.Wait()
	s.forwarder.remove(s)
}

func (s *Session) end(cause error) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(cause)
}

func (s *Session) startRequest() bool {
	if s.ctx.Err() != nil {
		if cause := context.Cause(s.ctx); !endedRegularly(cause) {
			s.taintBy(cause)
		}
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.requests.Add(1)
	s.inFlight++
	s.progress++
	return true
}

// endedRegularly reports whether a session's end is no fault: it was closed, or the agent
// exceeded a limit.
func endedRegularly(cause error) bool {
	var over *agent.LimitError
	return errors.Is(cause, errSessionClosed) || errors.As(cause, &over)
}

func (s *Session) endRequest() {
	s.mu.Lock()
	s.inFlight--
	if s.inFlight == 0 {
		s.idleSince = time.Now()
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

// stall notes that a request has waited since began because of a fault. Time of
// earlier stalls doesn't count twice.
func (s *Session) stall(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.Before(s.lastStallEnd) {
		began = s.lastStallEnd
	}
	if s.stalled == 0 || began.Before(s.stallBegan) {
		s.stallBegan = began
	}
	s.stalled++
}

// resume ends a stall. If err is not nil, there was no reply after it.
func (s *Session) resume(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled--
	if s.stalled == 0 {
		s.lastStallEnd = time.Now()
		s.stalledBefore += s.lastStallEnd.Sub(s.stallBegan)
	}
	if err != nil {
		s.setTaint(err)
	}
}

// taintBy notes a fault that the agent could have seen.
func (s *Session) taintBy(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setTaint(fault)
}

func (s *Session) setTaint(fault error) {
	if s.taint == nil {
		s.taint = fmt.Errorf("fault in sight of the agent: %w", fault)
		s.log.Warn("attempt tainted", zap.Error(fault))
	}
}

// authorizes reports whether the request holds the key of the session. A session without
// a key authorizes nothing.
func (s *Session) authorizes(r *http.Request) bool {
	got, want := sha256.Sum256([]byte(protocol.PresentedKey(r))), sha256.Sum256([]byte(s.key))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && s.key != ""
}
