package forwarder

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/internal/truncate"
	"github.com/fulgurite/fulgurite/record"
)

// SessionReport is a forwarder's report on an attempt whose agent has ended.
type SessionReport struct {
	// Fault is the fault of ours that the agent could have seen; empty if there was none.
	Fault string `json:"fault,omitempty"`
	// Failure is the limit that the agent exceeded, if it did. Message describes it.
	Failure agent.Failure `json:"failure,omitempty"`
	Message string        `json:"message,omitempty"`
	// Waited is how long the agent was held up by faults that it did not see.
	Waited time.Duration `json:"waited,omitempty"`
	// PartlyRead names the requests whose streamed reply the agent closed, see
	// Session.PartlyRead.
	PartlyRead []string `json:"partly_read,omitempty"`
}

// OpenExternal opens a session for an external agent, which another program starts. The
// session stays open until CloseExternal is called with the attempt's key, from any
// process, or until long has passed. If the forwarder is closed, the session is tainted
// like any other. If the forwarder is gone, requests to it get no answer. Both count as
// faults.
func (f *Forwarder) OpenExternal(address record.Address, key string, long time.Duration) (*Session, error) {
	s := newSession(context.Background(), f, address, key)
	s.external = true
	if _, err := f.open(s); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiry = time.AfterFunc(long, s.Close)
	return s, nil
}

// closeExternal closes an external session and answers with its SessionReport.
func closeExternal(w http.ResponseWriter, r *http.Request, s *Session) {
	if s == nil || !s.external || !s.authorizes(r) {
		refuseUnread(w, r, http.StatusNotFound, protocol.CodeNotFound, "no such session was lent here under this key")
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusalTimeout)) // it has no body to wait for
	var out SessionReport
	var over *agent.LimitError
	if errors.As(context.Cause(s.ctx), &over) {
		out.Failure, out.Message = over.Failure, over.Message
	}
	out.Waited = s.Waited()
	w.Header().Set("Content-Type", "application/json")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	alive := time.NewTicker(closeSign)
	defer alive.Stop()
	for open := true; open; {
		select {
		case <-closed:
			open = false
		case <-alive.C: // a space before the report
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
		}
	}
	// Only now is it known what the agent could have seen.
	if fault := s.Fault(); fault != nil {
		out.Fault = fault.Error()
	}
	out.PartlyRead = s.PartlyRead()
	_ = json.NewEncoder(w).Encode(out) // if the client has left, it counts this as a fault
}

const (
	// closeTimeout is how long a forwarder that closes a session may be silent: it may
	// have to find out that its gateway is gone.
	closeTimeout = 30 * time.Second
	// closeSign is the time between two signs of life of a forwarder that closes a
	// session: it may have to wait until a stream is sampled that the agent closed.
	closeSign = 5 * time.Second
)

// reportBytes bounds a SessionReport: an attempt can close many streams.
const reportBytes = 4 << 20

// awakeReader calls awake after each read.
type awakeReader struct {
	io.Reader
	awake func()
}

func (r awakeReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.awake()
	return n, err //nolint:wrapcheck // a reader adds nothing
}

// CloseExternal closes the external session at baseURL. An error means that it can't be
// known whether the agent saw a fault, for example because the worker that opened the
// session is gone.
//
// trusted says which certificates the worker may have; nil is what the system accepts.
func CloseExternal(ctx context.Context, baseURL, key string, trusted *tls.Config) (SessionReport, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(closeTimeout, cancel)
	defer silent.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, strings.TrimSuffix(baseURL, "/v1"), http.NoBody)
	if err != nil {
		return SessionReport{}, fmt.Errorf("settle session: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	transport := health.NewTransport(trusted)
	transport.DisableKeepAlives = true
	response, err := transport.RoundTrip(request)
	if err != nil {
		return SessionReport{}, fmt.Errorf("settle session: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(awakeReader{io.LimitReader(response.Body, reportBytes), func() { silent.Reset(closeTimeout) }})
	if err != nil {
		return SessionReport{}, fmt.Errorf("settle session: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return SessionReport{}, fmt.Errorf("settle session: the worker answers %s: %s", response.Status, truncate.Head(strings.TrimSpace(string(body)), 2<<10))
	}
	var out SessionReport
	if err := json.Unmarshal(body, &out); err != nil {
		return SessionReport{}, fmt.Errorf("settle session: %w", err)
	}
	return out, nil
}
