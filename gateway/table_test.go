package gateway_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/record"
)

func (s *testEnv) attemptReads() int {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.reads
}

// visit makes a call of the attempt of a sample and returns when the gateway is
// done with it, which a client over the network can't know.
func visit(t *testing.T, g *gateway.Gateway, sample int) {
	t.Helper()
	path := fmt.Sprintf("/r/demo/train-3/17/%d/1/v1/chat/completions", sample)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(ask("a")))
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
}

func TestIdleAttemptsLeaveMemoryAndComeBack(t *testing.T) {
	t.Parallel()
	now := start
	s := newUnservedEnv(nil, func(c *gateway.Config) {
		c.Idle = time.Minute
		c.Now = func() time.Time { return now }
	})
	g := gateway.New(s.config)
	other := address
	other.Sample = 3
	s.Begin(record.Attempt{Address: other, Terms: terms, KeyHash: hash(key)})
	visit(t, g, address.Sample)
	visit(t, g, address.Sample)
	require.Equal(t, 1, s.attemptReads())
	now = start.Add(2 * time.Minute)
	visit(t, g, other.Sample)
	visit(t, g, address.Sample)
	require.Equal(t, 3, s.attemptReads(), "it was forgotten and read again")
	require.Equal(t, 2, s.recorded(t)[2].Occurrence, "and it counts on")
}

func TestMemoryHoldsNoMoreAttemptsThanAllowed(t *testing.T) {
	t.Parallel()
	s := newUnservedEnv(nil, func(c *gateway.Config) { c.Attempts = 2 })
	g := gateway.New(s.config)
	for sample := range 4 {
		a := address
		a.Sample = sample
		s.Begin(record.Attempt{Address: a, Terms: terms, KeyHash: hash(key)})
	}
	for _, sample := range []int{0, 1, 0, 2, 0} {
		visit(t, g, sample)
	}
	require.Equal(t, 3, s.attemptReads(), "the one used last stays")
	visit(t, g, 1)
	require.Equal(t, 4, s.attemptReads(), "the one used least recently went")
}

func TestAttemptsThatDoNotExistAreNotRemembered(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.Attempts = 1 })
	s.chat(t, ask("a"))
	for n := range 3 {
		url := fmt.Sprintf("%s/r/demo/train-3/17/%d/9/v1/models", s.url, n)
		a, err := s.try(t.Context(), http.MethodGet, url, "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, a.status)
	}
	later := address
	later.Attempt = 9
	s.Begin(record.Attempt{Address: later, Terms: terms, KeyHash: hash(key)})
	a, err := s.try(t.Context(), http.MethodGet, s.url+"/r/"+later.String()+"/v1/models", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status, "it has begun since")
}

func TestAnAttemptWithACallInFlightStaysInMemory(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]func(*gateway.Config){
		"bounded by count": func(c *gateway.Config) { c.Attempts = 1 },
		"bounded by bytes": func(c *gateway.Config) { c.Memory = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testInFlightStaysInMemory(t, bound)
		})
	}
}

func testInFlightStaysInMemory(t *testing.T, bound func(*gateway.Config)) {
	t.Helper()
	s, gate := newUnservedEnv(nil, bound), newSamplingGate()
	other := address
	other.Sample = 3
	s.Begin(record.Attempt{Address: other, Terms: terms, KeyHash: hash(key)})
	s.gate = gate.gate
	g := gateway.New(s.config)
	var first sync.WaitGroup
	first.Go(func() { g.ServeHTTP(httptest.NewRecorder(), chatRequest(t.Context(), ask("a"))) })
	<-gate.arrived
	look := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/r/"+other.String()+"/v1/models", nil)
	look.Header.Set("Authorization", "Bearer "+key)
	g.ServeHTTP(httptest.NewRecorder(), look)
	gate.pass <- struct{}{}
	first.Wait()
	g.ServeHTTP(httptest.NewRecorder(), look)
	require.Equal(t, 3, s.attemptReads(), "both went once idle")

	first.Go(func() { g.ServeHTTP(httptest.NewRecorder(), chatRequest(t.Context(), ask("b"))) })
	<-gate.arrived
	before := s.attemptReads()
	inside := make(chan struct{})
	again := chatRequest(watched{t.Context(), inside}, ask("b"))
	again.Header.Set("X-Fulgurite-Retry", "1")
	g.ServeHTTP(httptest.NewRecorder(), look)
	first.Go(func() { g.ServeHTTP(httptest.NewRecorder(), again) })
	<-inside
	gate.pass <- struct{}{}
	first.Wait()
	require.Equal(t, before+1, s.attemptReads(), "only the visited one was read")
	require.Len(t, s.recorded(t), 2)
}
