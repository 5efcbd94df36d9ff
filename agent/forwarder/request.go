package forwarder

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/wait"
)

const (
	firstBackoff = 100 * time.Millisecond
	longBackoff  = 5 * time.Second
)

// errAgentLeft says that the agent stopped reading its reply.
var errAgentLeft = errors.New("agent left")

// faultStatus is the status of a reply that reports a fault of ours.
type faultStatus int

func (e faultStatus) Error() string { return "gateway answered " + strconv.Itoa(int(e)) }

// request is one request of an agent on its way to the gateway, however often it is sent
// there, and the reply on its way back.
type request struct {
	session     *Session
	w           http.ResponseWriter
	r           *http.Request
	body        []byte
	ctx         context.Context // ends with the agent's connection and with the session, see leave
	cancel      context.CancelFunc
	target      string // the gateway that was asked last
	name        string // unique among requests
	retries     int
	headWritten bool
	sent        *sentPrefix // the part of a streamed reply that the agent has
	lastError   []byte      // the error event with which the last try broke off
	lastRead    time.Time   // when a part of the reply last arrived

	failedTries int // tries that failed since the agent began to wait

	mu       sync.Mutex // guards what follows, and target
	stalled  bool       // the agent waits because of a fault
	begun    bool       // the agent has a part of a streamed reply
	left     bool       // the agent has closed that stream, and the rest is read without it
	gone     bool       // the agent has left before the reply had begun
	finished bool       // the request is over
	ended    chan struct{}
	probes   sync.WaitGroup // of a gateway whose agent left
}

// forward answers the agent with the gateway's reply, asking for as long as it takes.
func (s *Session) forward(w http.ResponseWriter, r *http.Request) {
	done, err := s.acquireSlot(r.Context())
	if errors.Is(err, errTooMany) {
		refuseUnread(w, r, http.StatusTooManyRequests, "too_many_requests", fmt.Sprintf("an attempt may have %d requests under way", maxConcurrent+maxWaiting))
		return
	}
	if err != nil {
		panic(http.ErrAbortHandler) // how a handler breaks its connection off
	}
	defer done()
	body, err := s.readBody(w, r)
	if errors.Is(err, errRefused) {
		return
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if s.awaitClosed(r.Context()) != nil {
		panic(http.ErrAbortHandler)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	q := request{session: s, w: w, r: r, body: body, ctx: ctx, cancel: cancel, name: crand.Text(), lastRead: time.Now(), ended: make(chan struct{})}
	defer q.end()
	for _, end := range []context.Context{r.Context(), s.ctx} {
		defer context.AfterFunc(end, q.leave)()
	}
	for _, end := range []context.Context{s.parent, s.forwarder.broken} {
		defer context.AfterFunc(end, cancel)()
	}
	for {
		err := q.try()
		if err == nil {
			break
		}
		if !q.retryable(err) {
			q.breakOff(err)
		}
		q.stall(err)
		if !q.pause() {
			q.breakOff(err)
		}
		q.retries++
		s.progressed()
	}
	q.gotReply()
	if q.finish() {
		s.delivered()
		return
	}
	panic(http.ErrAbortHandler) // the connection must not be used again
}

// leave is called when the agent's connection or the session ends. If the agent has begun
// to read a stream, and nothing but its own will can have ended it, the rest of the stream
// is read all the same, so that the call is sampled and recorded whole: the agent used
// what it read. Otherwise the request ends.
func (q *request) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	cause := context.Cause(q.session.ctx)
	regular := cause == nil || endedRegularly(cause)
	switch {
	case q.finished || q.gone || q.left && regular:
		return
	case q.begun && !q.stalled && regular:
		q.left = true
		q.session.addClosed(q)
		// An agent may have left because nothing came.
		target := q.target
		q.probes.Go(func() {
			if !q.session.Tainted() && !q.session.forwarder.answers(target) {
				q.session.taintBy(errSilent)
			}
		})
	default:
		q.gone = true
		q.cancel()
	}
	// A client that reads nothing does not delay the end.
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now())
}

// begin notes that the agent gets a part of a stream. It reports false if the agent is
// gone.
func (q *request) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begun = q.begun || !q.gone
	return !q.gone
}

// hasLeft reports whether the agent has closed the stream that it had begun to read.
func (q *request) hasLeft() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left
}

// finish ends a request that has its reply. It reports whether the agent got it.
func (q *request) finish() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.finished = true
	if q.left {
		q.session.readPart(q.name)
	}
	return !q.left && !q.gone
}

// end lets the requests go on that waited for this one.
func (q *request) end() {
	q.mu.Lock()
	q.finished = true
	q.mu.Unlock()
	q.probes.Wait()
	q.session.removeClosed(q)
	close(q.ended)
}

// retryable reports whether asking again may help. It may even if the agent has part of a
// stream, because the rest can still be fetched.
func (q *request) retryable(err error) bool {
	return q.ctx.Err() == nil && (q.session.ctx.Err() == nil || q.hasLeft()) && !errors.Is(err, errAgentLeft) && !errors.Is(err, errOtherBytes)
}

// stall notes a try that failed. The agent counts as waiting since it last got something,
// unless it has left.
func (q *request) stall(err error) {
	q.failedTries++
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalled || q.left {
		return
	}
	q.stalled = true
	q.session.log.Warn("gateway fault, asking again", zap.String("path", q.r.URL.Path), zap.Error(err))
	q.session.stall(q.lastRead)
}

// gotReply notes that the agent gets its reply.
func (q *request) gotReply() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalled {
		q.session.resume(nil)
	}
	q.stalled, q.failedTries = false, 0
}

// pause waits before the next try: 100 ms, doubling up to 5 s, less up to half
// so that agents that were interrupted together don't return together.
func (q *request) pause() bool {
	d := min(longBackoff, firstBackoff<<min(q.failedTries-1, 10))
	return wait.For(q.ctx, d-time.Duration(rand.Int64N(int64(d/2))))
}

// breakOff breaks off the agent's connection, for a request that can't be completed. It
// taints the attempt if the agent waited because of a fault, or if neither the attempt
// has ended nor the agent left. An agent may have left because nothing came. So if it
// left, the gateway has to answer a probe, or the attempt is tainted, too.
func (q *request) breakOff(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stalled {
		q.session.resume(err)
		q.stalled = false
	}
	cause := context.Cause(q.session.ctx)
	left := errors.Is(err, errAgentLeft) || errors.Is(cause, errSessionClosed) || cause == nil && q.r.Context().Err() != nil
	switch {
	case cause != nil && !endedRegularly(cause):
		q.session.taintBy(cause)
	case q.left: // what the agent read may never be recorded
		q.session.taintBy(err)
	case left && !q.session.Tainted() && !q.session.forwarder.answers(q.target):
		q.session.taintBy(errSilent)
	case left:
	case cause == nil:
		q.session.taintBy(err)
	}
	panic(http.ErrAbortHandler)
}

// try asks once, and waits for as long as the gateway is alive. After an error nothing
// has been written, unless x.headWritten.
func (q *request) try() error {
	target := q.session.forwarder.target()
	q.mu.Lock()
	q.target = target
	q.mu.Unlock()
	ctx, release := q.session.forwarder.proberOf(q.target).Guard(q.ctx)
	defer release()
	err := q.roundTrip(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return err
}

func (q *request) roundTrip(ctx context.Context) error {
	out, err := q.outgoing(ctx)
	if err != nil {
		return err
	}
	response, err := q.session.forwarder.transport.RoundTrip(out)
	if err != nil {
		return fmt.Errorf("ask gateway: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case protocol.IsFault(response):
		return faultStatus(response.StatusCode)
	case response.StatusCode == http.StatusOK && strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream"):
		return q.stream(response)
	case q.headWritten:
		return q.endRefused(response)
	default:
		return q.relayWhole(response)
	}
}

// outgoing returns the request as it is sent to the current gateway.
func (q *request) outgoing(ctx context.Context) (*http.Request, error) {
	if q.target == "" {
		return nil, errors.New("no gateway known")
	}
	u, err := url.Parse(q.target)
	if err != nil {
		return nil, fmt.Errorf("parse gateway address: %w", err)
	}
	u = u.JoinPath(q.r.URL.EscapedPath())
	u.RawQuery = q.r.URL.RawQuery
	out, err := http.NewRequestWithContext(ctx, q.r.Method, u.String(), bytes.NewReader(q.body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	maps.Copy(out.Header, q.r.Header)
	dropHopHeaders(out.Header)
	for name := range out.Header {
		if strings.HasPrefix(name, protocol.HeaderPrefix) {
			delete(out.Header, name)
		}
	}
	out.Header.Del("Accept-Encoding") // the forwarder has to read streams
	if out.Header.Get("User-Agent") == "" {
		out.Header["User-Agent"] = nil // don't add one
	}
	out.Header.Set(protocol.RequestNameHeader, q.name)
	if q.retries > 0 {
		out.Header.Set(protocol.RetryHeader, strconv.Itoa(q.retries))
		repeats, _ := strconv.Atoi(q.r.Header.Get(protocol.SDKRetryHeader)) // absent or malformed: 0
		out.Header.Set(protocol.SDKRetryHeader, strconv.Itoa(repeats+q.retries))
	}
	return out, nil
}

// dropHopHeaders removes the headers that concern one connection only.
func dropHopHeaders(h http.Header) {
	for _, names := range h["Connection"] {
		for name := range strings.SplitSeq(names, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect",
	} {
		h.Del(name)
	}
}

// relayWhole reads the reply to its end before the agent sees any of it.
func (q *request) relayWhole(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, replyBytes+1))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if len(body) > replyBytes {
		return fmt.Errorf("read reply: more than %d bytes", replyBytes)
	}
	if response.StatusCode >= 500 {
		q.session.taintBy(faultStatus(response.StatusCode))
	}
	if response.StatusCode >= 400 {
		if err := q.session.noteRefusal(response.Header, body); err != nil {
			return err
		}
	}
	q.writeHead(response)
	_, _ = q.w.Write(body) // an error means that the agent has left
	return nil
}

// endRefused handles a reply that can't be passed on any more, because the agent has the
// beginning of a stream.
func (q *request) endRefused(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if err := q.session.noteRefusal(response.Header, body); err != nil {
		return err
	}
	return fmt.Errorf("%w: status %d", errOtherBytes, response.StatusCode)
}

func (q *request) writeHead(response *http.Response) {
	q.headWritten = true
	maps.Copy(q.w.Header(), response.Header)
	dropHopHeaders(q.w.Header())
	q.w.WriteHeader(response.StatusCode)
}

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
