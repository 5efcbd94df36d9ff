package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/trace"
)

// Settlement is what a forwarder knows of an attempt whose agent has ended.
type Settlement struct {
	// Fault is what the agent could have seen of a fault of ours; empty is nothing.
	Fault string `json:"fault,omitempty"`
	// Failure is how the agent went too far, if it did.
	Failure Failure `json:"failure,omitempty"`
	Message string  `json:"message,omitempty"`
	// Waited is how long the agent was held up by faults that it did not see.
	Waited time.Duration `json:"waited,omitempty"`
}

// Lend opens a session for an agent that runs elsewhere, under nobody's eyes: it
// stays open until Settle is called with the attempt's key, from wherever, or for so
// long. It is tainted by the end of the forwarder, as any other, and what an agent
// asks of a forwarder that is gone is answered by nobody: both count as faults.
func (f *Forwarder) Lend(address trace.Address, key string, long time.Duration) (*Session, error) {
	s := newSession(context.Background(), f, address, key)
	s.lent = true
	if _, err := f.open(s); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiry = time.AfterFunc(long, s.Close)
	return s, nil
}

// settle closes a session that was lent and answers with its Settlement.
func settle(w http.ResponseWriter, r *http.Request, s *Session) {
	if s == nil || !s.lent || !s.admits(r) {
		turnAway(w, r, http.StatusNotFound, protocol.CodeNotFound, "no such session was lent here under this key")
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusalTime)) // it has no body to wait for
	var out Settlement
	var over *exceeded
	if errors.As(context.Cause(s.ctx), &over) {
		out.Failure, out.Message = over.failure, over.message
	}
	out.Waited = s.Waited()
	s.Close() // only now is all known that the agent could have seen
	if fault := s.Fault(); fault != nil {
		out.Fault = fault.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // who left asks in vain: then it counts as a fault
}

// settleWait is how long a forwarder may take to settle: it may have to find out
// that its gateway is gone.
const settleWait = 30 * time.Second

// Settle closes the session that was lent at baseURL. An error says that what the
// agent saw can't be known, as when the worker that lent it is gone.
func Settle(ctx context.Context, baseURL, key string) (Settlement, error) {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, strings.TrimSuffix(baseURL, "/v1"), http.NoBody)
	if err != nil {
		return Settlement{}, fmt.Errorf("settle session: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	transport := newTransport()
	transport.DisableKeepAlives = true
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Settlement{}, fmt.Errorf("settle session: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return Settlement{}, fmt.Errorf("settle session: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return Settlement{}, fmt.Errorf("settle session: the worker answers %s: %s", response.Status, excerpt(body))
	}
	var out Settlement
	if err := json.Unmarshal(body, &out); err != nil {
		return Settlement{}, fmt.Errorf("settle session: %w", err)
	}
	return out, nil
}
