package agent

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
	"time"

	"go.uber.org/zap"
)

const (
	// FaultHeader on a reply of status 503 says that the gateway, not the
	// request, is at fault, and that asking again is right.
	FaultHeader = "X-Fulgurite-Fault"
	// RetryHeader on a request counts how often the forwarder has asked the same
	// before without getting a whole reply. The agent can't set it.
	RetryHeader = "X-Fulgurite-Retry"
	// retryCountHeader is what the common SDKs send when they ask again.
	retryCountHeader = "X-Stainless-Retry-Count"
	// ExchangeHeader on a request names the one request of the agent that is asked
	// for, however often: two that are alike have two names.
	ExchangeHeader = "X-Fulgurite-Exchange"

	firstBackoff = 100 * time.Millisecond
	longBackoff  = 5 * time.Second
)

// errAgentLeft is for an agent that stopped reading its reply.
var errAgentLeft = errors.New("agent left")

// faultStatus is a reply that speaks of a fault of ours.
type faultStatus int

func (e faultStatus) Error() string { return "gateway answered " + strconv.Itoa(int(e)) }

// exchange is one request of an agent on its way to the gateway.
type exchange struct {
	session *Session
	w       http.ResponseWriter
	r       *http.Request
	body    []byte
	ctx     context.Context // ends with the agent's connection and with the session
	target  string          // that was asked last
	name    string          // differs from that of every other exchange
	retries int
	begun   bool // the reply's head has been written
}

// forward answers the agent with the gateway's reply, asking for as long as it takes.
func (s *Session) forward(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, requestBytes))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			refuse(w, http.StatusRequestEntityTooLarge, "request_too_large",
				fmt.Sprintf("a request may have %d bytes", requestBytes))
		}
		return // otherwise the agent is gone
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	x := exchange{session: s, w: w, r: r, body: body, ctx: ctx, name: crand.Text()}
	began := time.Now()
	err = x.ask()
	if err != nil && ctx.Err() == nil && s.ctx.Err() == nil && !x.begun {
		err = x.persist(err, began)
	}
	if err != nil {
		x.giveUp(err)
	}
	s.delivered()
}

// persist asks again until there is a reply. That counts as waiting, and taints
// the attempt if it ends without one, whoever ends it.
func (x *exchange) persist(err error, began time.Time) error {
	x.session.log.Warn("gateway fault, asking again", zap.String("path", x.r.URL.Path), zap.Error(err))
	x.session.stall(began)
	for err != nil && !x.begun && x.pause() {
		x.retries++
		x.session.progressed()
		err = x.ask()
	}
	x.session.resume(err)
	return err
}

// pause waits before the next try: 100 ms, doubling up to 5 s, less up to half
// so that agents that were interrupted together don't return together.
func (x *exchange) pause() bool {
	wait := min(longBackoff, firstBackoff<<min(x.retries, 10))
	return pause(x.ctx, wait-time.Duration(rand.Int64N(int64(wait/2))))
}

// giveUp breaks off the agent's connection, for an exchange that can't be
// completed. That taints the attempt, unless it is over or the agent left. One that
// left before it got anything may have left since nothing came: then the gateway
// has to show that it was there.
func (x *exchange) giveUp(err error) {
	cause := context.Cause(x.session.ctx)
	left := errors.Is(err, errAgentLeft) || errors.Is(cause, errSessionClosed) || cause == nil && x.r.Context().Err() != nil
	switch {
	case left && !x.begun && !x.session.Tainted() && !x.session.forwarder.answers(x.target):
		x.session.visible(errSilent)
	case left:
	case cause != nil && !ended(cause):
		x.session.visible(cause)
	case cause == nil:
		x.session.visible(err)
	}
	panic(http.ErrAbortHandler) // how a handler breaks its connection off
}

// ask tries once, for as long as the gateway is there. After an error nothing has
// been written, unless x.begun.
func (x *exchange) ask() error {
	x.target = x.session.forwarder.target()
	ctx, abandon := context.WithCancelCause(x.ctx)
	defer abandon(context.Canceled)
	defer x.session.forwarder.watch(ctx, x.target, abandon)()
	err := x.askIn(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	return err
}

func (x *exchange) askIn(ctx context.Context) error {
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
	case again(response):
		return faultStatus(response.StatusCode)
	case strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream"):
		return x.stream(response)
	default:
		return x.whole(response)
	}
}

// again reports whether the reply speaks for a fault rather than for the
// gateway: one that it declares, or one of a proxy that could not reach it.
func again(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return response.StatusCode >= 500 && response.Header.Get(FaultHeader) != ""
}

// request is the agent's request to the gateway of this moment.
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
		if strings.HasPrefix(name, "X-Fulgurite-") {
			delete(request.Header, name)
		}
	}
	if request.Header.Get("User-Agent") == "" {
		request.Header["User-Agent"] = nil // don't add one
	}
	request.Header.Set(ExchangeHeader, x.name)
	if x.retries > 0 {
		request.Header.Set(RetryHeader, strconv.Itoa(x.retries))
		asked, _ := strconv.Atoi(x.r.Header.Get(retryCountHeader)) // absent or odd: never
		request.Header.Set(retryCountHeader, strconv.Itoa(asked+x.retries))
	}
	return request, nil
}

// dropHopHeaders removes what concerns one connection only.
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

// whole reads the reply to its end before the agent sees any of it.
func (x *exchange) whole(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, replyBytes+1))
	if err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	if len(body) > replyBytes {
		return fmt.Errorf("read reply: more than %d bytes", replyBytes)
	}
	if response.StatusCode >= 500 {
		x.session.visible(faultStatus(response.StatusCode))
	}
	if response.StatusCode >= 400 {
		if err := x.session.heed(body); err != nil {
			return err
		}
	}
	x.head(response)
	_, _ = x.w.Write(body) // an agent that left doesn't want it
	return nil
}

// stream passes the reply on piece by piece. Until the first piece is here the
// request can still be asked again.
func (x *exchange) stream(response *http.Response) error {
	out := http.NewResponseController(x.w)
	piece := make([]byte, 32<<10)
	for {
		n, err := response.Body.Read(piece)
		if n > 0 {
			if !x.begun {
				x.head(response)
			}
			_, failed := x.w.Write(piece[:n])
			if failed = errors.Join(failed, out.Flush()); failed != nil {
				return fmt.Errorf("%w: %w", errAgentLeft, failed)
			}
			x.session.progressed()
		}
		if errors.Is(err, io.EOF) {
			if !x.begun {
				x.head(response)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read stream: %w", err)
		}
	}
}

func (x *exchange) head(response *http.Response) {
	x.begun = true
	maps.Copy(x.w.Header(), response.Header)
	dropHopHeaders(x.w.Header())
	x.w.WriteHeader(response.StatusCode)
}
