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

// exchange is one request of an agent on its way to the gateway.
type exchange struct {
	session     *Session
	w           http.ResponseWriter
	r           *http.Request
	body        []byte
	ctx         context.Context // ends with the agent's connection and with the session, see leave
	cancel      context.CancelFunc
	target      string // the gateway that was asked last
	name        string // unique among exchanges
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
	finished bool       // the exchange is over
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
	x := exchange{session: s, w: w, r: r, body: body, ctx: ctx, cancel: cancel, name: crand.Text(), lastRead: time.Now(), ended: make(chan struct{})}
	defer x.end()
	for _, end := range []context.Context{r.Context(), s.ctx} {
		defer context.AfterFunc(end, x.leave)()
	}
	for _, end := range []context.Context{s.parent, s.forwarder.broken} {
		defer context.AfterFunc(end, cancel)()
	}
	for {
		err := x.try()
		if err == nil {
			break
		}
		if !x.retryable(err) {
			x.breakOff(err)
		}
		x.stall(err)
		if !x.pause() {
			x.breakOff(err)
		}
		x.retries++
		s.progressed()
	}
	x.gotReply()
	if x.finish() {
		s.delivered()
		return
	}
	panic(http.ErrAbortHandler) // the connection must not be used again
}

// leave is called when the agent's connection or the session ends. If the agent has begun
// to read a stream, and nothing but its own will can have ended it, the rest of the stream
// is read all the same, so that the call is sampled and recorded whole: the agent used
// what it read. Otherwise the request ends.
func (x *exchange) leave() {
	x.mu.Lock()
	defer x.mu.Unlock()
	cause := context.Cause(x.session.ctx)
	regular := cause == nil || endedRegularly(cause)
	switch {
	case x.finished || x.gone || x.left && regular:
		return
	case x.begun && !x.stalled && regular:
		x.left = true
		x.session.addClosed(x)
		// An agent may have left because nothing came.
		target := x.target
		x.probes.Go(func() {
			if !x.session.Tainted() && !x.session.forwarder.answers(target) {
				x.session.taintBy(errSilent)
			}
		})
	default:
		x.gone = true
		x.cancel()
	}
	// A client that reads nothing does not delay the end.
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now())
}

// begin notes that the agent gets a part of a stream. It reports false if the agent is
// gone.
func (x *exchange) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.begun = x.begun || !x.gone
	return !x.gone
}

// hasLeft reports whether the agent has closed the stream that it had begun to read.
func (x *exchange) hasLeft() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.left
}

// finish ends an exchange that has its reply. It reports whether the agent got it.
func (x *exchange) finish() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.finished = true
	if x.left {
		x.session.readPart(x.name)
	}
	return !x.left && !x.gone
}

// end lets the requests go on that waited for the exchange.
func (x *exchange) end() {
	x.mu.Lock()
	x.finished = true
	x.mu.Unlock()
	x.probes.Wait()
	x.session.removeClosed(x)
	close(x.ended)
}

// retryable reports whether asking again may help. It may even if the agent has part of a
// stream, since the rest can still be fetched.
func (x *exchange) retryable(err error) bool {
	return x.ctx.Err() == nil && (x.session.ctx.Err() == nil || x.hasLeft()) && !errors.Is(err, errAgentLeft) && !errors.Is(err, errOtherBytes)
}

// stall notes a try that failed. The agent counts as waiting since it last got something,
// unless it has left.
func (x *exchange) stall(err error) {
	x.failedTries++
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stalled || x.left {
		return
	}
	x.stalled = true
	x.session.log.Warn("gateway fault, asking again", zap.String("path", x.r.URL.Path), zap.Error(err))
	x.session.stall(x.lastRead)
}

// gotReply notes that the agent gets its reply.
func (x *exchange) gotReply() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stalled {
		x.session.resume(nil)
	}
	x.stalled, x.failedTries = false, 0
}

// pause waits before the next try: 100 ms, doubling up to 5 s, less up to half
// so that agents that were interrupted together don't return together.
func (x *exchange) pause() bool {
	d := min(longBackoff, firstBackoff<<min(x.failedTries-1, 10))
	return wait.For(x.ctx, d-time.Duration(rand.Int64N(int64(d/2))))
}

// breakOff breaks off the agent's connection, for an exchange that can't be completed. It
// taints the attempt if the agent waited because of a fault, or if neither the attempt
// has ended nor the agent left. An agent may have left because nothing came. So if it
// left, the gateway has to answer a probe, or the attempt is tainted, too.
func (x *exchange) breakOff(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stalled {
		x.session.resume(err)
		x.stalled = false
	}
	cause := context.Cause(x.session.ctx)
	left := errors.Is(err, errAgentLeft) || errors.Is(cause, errSessionClosed) || cause == nil && x.r.Context().Err() != nil
	switch {
	case cause != nil && !endedRegularly(cause):
		x.session.taintBy(cause)
	case x.left: // what the agent read may never be recorded
		x.session.taintBy(err)
	case left && !x.session.Tainted() && !x.session.forwarder.answers(x.target):
		x.session.taintBy(errSilent)
	case left:
	case cause == nil:
		x.session.taintBy(err)
	}
	panic(http.ErrAbortHandler)
}

// try asks once, and waits for as long as the gateway is alive. After an error nothing
// has been written, unless x.headWritten.
func (x *exchange) try() error {
	target := x.session.forwarder.target()
	x.mu.Lock()
	x.target = target
	x.mu.Unlock()
	ctx, release := x.session.forwarder.proberOf(x.target).Guard(x.ctx)
	defer release()
	err := x.roundTrip(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return err
}

func (x *exchange) roundTrip(ctx context.Context) error {
	request, err := x.request(ctx)
	if err != nil {
		return err
	}
	response, err := x.session.forwarder.transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("ask gateway: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case protocol.IsFault(response):
		return faultStatus(response.StatusCode)
	case response.StatusCode == http.StatusOK && strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream"):
		return x.stream(response)
	case x.headWritten:
		return x.endRefused(response)
	default:
		return x.relayWhole(response)
	}
}

// request returns the agent's request, addressed to the current gateway.
func (x *exchange) request(ctx context.Context) (*http.Request, error) {
	if x.target == "" {
		return nil, errors.New("no gateway known")
	}
	u, err := url.Parse(x.target)
	if err != nil {
		return nil, fmt.Errorf("parse gateway address: %w", err)
	}
	u = u.JoinPath(x.r.URL.EscapedPath())
	u.RawQuery = x.r.URL.RawQuery
	request, err := http.NewRequestWithContext(ctx, x.r.Method, u.String(), bytes.NewReader(x.body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	maps.Copy(request.Header, x.r.Header)
	dropHopHeaders(request.Header)
	for name := range request.Header {
		if strings.HasPrefix(name, protocol.HeaderPrefix) {
			delete(request.Header, name)
		}
	}
	request.Header.Del("Accept-Encoding") // the forwarder has to read streams
	if request.Header.Get("User-Agent") == "" {
		request.Header["User-Agent"] = nil // don't add one
	}
	request.Header.Set(protocol.RequestNameHeader, x.name)
	if x.retries > 0 {
		request.Header.Set(protocol.RetryHeader, strconv.Itoa(x.retries))
		asked, _ := strconv.Atoi(x.r.Header.Get(protocol.SDKRetryHeader)) // absent or malformed: 0
		request.Header.Set(protocol.SDKRetryHeader, strconv.Itoa(asked+x.retries))
	}
	return request, nil
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
func (x *exchange) relayWhole(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, replyBytes+1))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if len(body) > replyBytes {
		return fmt.Errorf("read reply: more than %d bytes", replyBytes)
	}
	if response.StatusCode >= 500 {
		x.session.taintBy(faultStatus(response.StatusCode))
	}
	if response.StatusCode >= 400 {
		if err := x.session.noteRefusal(response.Header, body); err != nil {
			return err
		}
	}
	x.writeHead(response)
	_, _ = x.w.Write(body) // an error means that the agent has left
	return nil
}

// endRefused handles a reply that can't be passed on any more, since the agent has the
// beginning of a stream.
func (x *exchange) endRefused(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if err := x.session.noteRefusal(response.Header, body); err != nil {
		return err
	}
	return fmt.Errorf("%w: status %d", errOtherBytes, response.StatusCode)
}

func (x *exchange) writeHead(response *http.Response) {
	x.headWritten = true
	maps.Copy(x.w.Header(), response.Header)
	dropHopHeaders(x.w.Header())
	x.w.WriteHeader(response.StatusCode)
}
