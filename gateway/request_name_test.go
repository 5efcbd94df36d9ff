package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
)

const (
	requestName = "X-Fulgurite-Exchange"
	retry       = "X-Fulgurite-Retry"
)

func TestAGatewayThatDiedLeavesEachRequestItsOwnReply(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		first := s.ask(t, 1, ask("a"), requestName, "e1")
		second := s.ask(t, 1, ask("a"), requestName, "e2")
		require.NotEqual(t, first.body, second.body)
		s.restart(t) // neither reply had arrived
		require.Equal(t, first.body, s.ask(t, 1, ask("a"), requestName, "e1", retry, "1", "X-Stainless-Retry-Count", "1").body)
		require.Equal(t, second.body, s.ask(t, 1, ask("a"), requestName, "e2", retry, "1", "X-Stainless-Retry-Count", "1").body)
		third := s.ask(t, 1, ask("a"), requestName, "e3", retry, "1", "X-Stainless-Retry-Count", "1")
		require.NotContains(t, []string{first.body, second.body}, third.body, "this one was lost before it was recorded")
		require.Len(t, s.calls(t, 1), 3)
		require.Len(t, s.requests(), 3)
	})
}

func TestAClientThatNeverRetriesGetsTheReplyOfADeadGateway(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		// The forwarder holds the client's connection and asks the next gateway.
		first := s.ask(t, 1, ask("a"), requestName, "e1")
		s.restart(t)
		require.Equal(t, first.body, s.ask(t, 1, ask("a"), requestName, "e1", retry, "1").body)
		require.Len(t, s.requests(), 1)
	})
}

func TestASecondRequestAfterAGatewayDiedIsASecondSample(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		first := s.ask(t, 1, ask("a"), requestName, "e1")
		s.restart(t)
		second := s.ask(t, 1, ask("a"), requestName, "e2")
		require.NotEqual(t, first.body, second.body)
		s.next(t, 2)
		require.Equal(t, first.body, s.ask(t, 2, ask("a")).body)
		require.Equal(t, second.body, s.ask(t, 2, ask("a")).body)
	})
}

func TestARetryBySDKMeansTheRequestBefore(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	first := s.ask(t, 1, ask("a"), requestName, "e1")
	require.Equal(t, first.body, s.ask(t, 1, ask("a"), requestName, "e2", "X-Stainless-Retry-Count", "1").body)
	require.Equal(t, first.body, s.ask(t, 1, ask("a"), requestName, "e2", retry, "1", "X-Stainless-Retry-Count", "2").body)
	require.NotEqual(t, first.body, s.ask(t, 1, ask("a"), requestName, "e3", retry, "1", "X-Stainless-Retry-Count", "1").body,
		"the forwarder asks again for a request that is none")
	require.Len(t, s.calls(t, 1), 2)
}

func TestAReplyThatNobodyHasGoesToWhoAsksNext(t *testing.T) {
	t.Parallel()
	s := newUnservedEnv(nil)
	g := gateway.New(s.config)
	send := func(w http.ResponseWriter, name, tries string) {
		r := chatRequest(t.Context(), ask("a"))
		r.Header.Set(requestName, name)
		r.Header.Set(retry, tries)
		g.ServeHTTP(w, r)
	}
	send(brokenPipe{httptest.NewRecorder()}, "e1", "0")
	// A client that gave up and asks again without saying so.
	second, first := httptest.NewRecorder(), httptest.NewRecorder()
	send(second, "e2", "0")
	require.JSONEq(t, string(s.recorded(t)[0].Response), second.Body.String())
	send(first, "e1", "1")
	require.NotEqual(t, first.Body.String(), second.Body.String(), "one reply is not given to two")
	require.Len(t, s.recorded(t), 2)
}

func TestARequestJoinsItsOwnCallInFlight(t *testing.T) {
	t.Parallel()
	s, gate := newTestEnv(t, nil), newSamplingGate()
	s.gate = gate.gate
	g := gateway.New(s.config)
	send := func(name, tries string) *http.Request {
		r := chatRequest(t.Context(), ask("a"))
		r.Header.Set(requestName, name)
		r.Header.Set(retry, tries)
		return r
	}
	replies := map[string]*httptest.ResponseRecorder{}
	for _, name := range []string{"e1", "e2", "e1 again", "e2 again"} {
		replies[name] = httptest.NewRecorder()
	}
	var all sync.WaitGroup
	for _, name := range []string{"e1", "e2"} {
		all.Go(func() { g.ServeHTTP(replies[name], send(name, "0")) })
		<-gate.arrived
	}
	for _, name := range []string{"e2", "e1"} {
		inside := make(chan struct{})
		r := send(name, "1")
		all.Go(func() { g.ServeHTTP(replies[name+" again"], r.WithContext(watched{t.Context(), inside})) })
		<-inside
	}
	gate.pass <- struct{}{}
	gate.pass <- struct{}{}
	all.Wait()
	require.Equal(t, replies["e1"].Body.String(), replies["e1 again"].Body.String())
	require.Equal(t, replies["e2"].Body.String(), replies["e2 again"].Body.String())
	require.NotEqual(t, replies["e1"].Body.String(), replies["e2"].Body.String())
	require.Len(t, s.recorded(t), 2)
}

func TestNamesOfRequestsAreBounded(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.ask(t, 1, ask("a"), requestName, strings.Repeat("e", 65))
	require.Empty(t, s.recorded(t)[0].RequestName)
}
