package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/gateway"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Kept-alive connections of the tests' own client.
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}

// samplingGate lets samplers through one by one.
type samplingGate struct{ arrived, pass chan struct{} }

func newSamplingGate() *samplingGate {
	return &samplingGate{make(chan struct{}, 16), make(chan struct{}, 16)}
}

func (g *samplingGate) gate(ctx context.Context) error {
	g.arrived <- struct{}{}
	select {
	case <-g.pass:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// brokenPipe is a client that is gone when the reply is written.
type brokenPipe struct{ *httptest.ResponseRecorder }

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func chatRequest(ctx context.Context, body string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/r/"+address.String()+"/v1/chat/completions", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	return r
}

func TestARetryInFlightJoinsItsCall(t *testing.T) {
	t.Parallel()
	s, gate := newTestEnv(t, nil), newSamplingGate()
	s.gate = gate.gate
	g := gateway.New(s.config)
	const others = 5
	replies := make([]*httptest.ResponseRecorder, others+1)
	var first, joined sync.WaitGroup
	replies[0] = httptest.NewRecorder()
	first.Go(func() { g.ServeHTTP(replies[0], chatRequest(t.Context(), ask("a"))) })
	<-gate.arrived
	for i := range others {
		replies[i+1] = httptest.NewRecorder()
		r := chatRequest(t.Context(), ask("a"))
		r.Header.Set("X-Stainless-Retry-Count", strconv.Itoa(i+1))
		joined.Go(func() { g.ServeHTTP(replies[i+1], r) })
	}
	gate.pass <- struct{}{}
	first.Wait()
	joined.Wait()
	for _, r := range replies {
		require.Equal(t, http.StatusOK, r.Code)
		require.Equal(t, replies[0].Body.String(), r.Body.String())
	}
	require.Len(t, s.requests(), 1)
	require.Len(t, s.recorded(t), 1)
}

func TestEqualRequestsAtOnceAreDifferentSamples(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	g := gateway.New(s.config)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { g.ServeHTTP(httptest.NewRecorder(), chatRequest(t.Context(), ask("a"))) })
	}
	all.Wait()
	calls := s.recorded(t)
	require.Len(t, calls, 16)
	seen := map[int]bool{}
	ids := map[string]bool{}
	for i, c := range calls {
		require.Equal(t, i, c.Seq)
		seen[c.Occurrence], ids[c.ID] = true, true
	}
	require.Len(t, seen, 16)
	require.Len(t, ids, 16)
	require.True(t, seen[0] && seen[15])
}

func TestARetryOfARecordedCallGetsItsReply(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"X-Stainless-Retry-Count", "X-Fulgurite-Retry"} {
		s := newTestEnv(t, nil)
		first := s.chat(t, ask("a"))
		require.Equal(t, first.body, s.chat(t, ask("a"), header, "1").body)
		s.restart(t)
		require.Equal(t, first.body, s.chat(t, ask("a"), header, "2").body)
		require.NotEqual(t, first.body, s.chat(t, ask("a"), header, "0").body, "not a retry")
		require.Len(t, s.recorded(t), 2)
	}
}

func TestAReplyThatWasNotDeliveredIsGivenAgain(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	g := gateway.New(s.config)
	g.ServeHTTP(brokenPipe{httptest.NewRecorder()}, chatRequest(t.Context(), ask("a")))
	require.Len(t, s.recorded(t), 1, "recorded all the same")
	again, more := httptest.NewRecorder(), httptest.NewRecorder()
	g.ServeHTTP(again, chatRequest(t.Context(), ask("a")))
	require.JSONEq(t, string(s.recorded(t)[0].Response), again.Body.String())
	g.ServeHTTP(more, chatRequest(t.Context(), ask("a")))
	require.NotEqual(t, again.Body.String(), more.Body.String(), "now it was delivered")
	require.Len(t, s.recorded(t), 2)
}

func TestACallThatNobodyWaitsForIsGivenUpAndMadeAgain(t *testing.T) {
	t.Parallel()
	s, gate := newTestEnv(t, nil), newSamplingGate()
	s.gate = gate.gate
	g := gateway.New(s.config)
	ctx, leave := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() { g.ServeHTTP(httptest.NewRecorder(), chatRequest(ctx, ask("a"))) })
	<-gate.arrived
	leave()
	first.Wait()
	require.Empty(t, s.recorded(t))
	gate.pass <- struct{}{}
	again := httptest.NewRecorder()
	g.ServeHTTP(again, chatRequest(t.Context(), ask("a")))
	require.Equal(t, http.StatusOK, again.Code, again.Body)
	asked := s.requests()
	require.Len(t, asked, 2)
	require.Equal(t, asked[0].Seed, asked[1].Seed)
	require.Len(t, s.recorded(t), 1)
}

func TestARepetitionWaitsForACallThatIsBeingGivenUp(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	sampling, abandoned, pass := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.gate = func(ctx context.Context) error {
		close(sampling)
		<-ctx.Done()
		close(abandoned)
		<-pass
		return nil // it had sampled already
	}
	g := gateway.New(s.config)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { g.ServeHTTP(httptest.NewRecorder(), chatRequest(ctx, ask("a"))) })
	<-sampling
	leave()
	<-abandoned
	inside, again := make(chan struct{}), httptest.NewRecorder()
	all.Go(func() { g.ServeHTTP(again, chatRequest(watched{t.Context(), inside}, ask("a"))) })
	<-inside
	close(pass)
	all.Wait()
	require.Equal(t, http.StatusOK, again.Code, again.Body)
	require.Len(t, s.requests(), 1)
	require.JSONEq(t, string(s.recorded(t)[0].Response), again.Body.String())
}

func TestAWaiterMayLeave(t *testing.T) {
	t.Parallel()
	s, gate := newTestEnv(t, nil), newSamplingGate()
	s.gate = gate.gate
	g := gateway.New(s.config)
	var first, second sync.WaitGroup
	reply := httptest.NewRecorder()
	first.Go(func() { g.ServeHTTP(reply, chatRequest(t.Context(), ask("a"))) })
	<-gate.arrived
	ctx, leave := context.WithCancel(t.Context())
	inside := make(chan struct{})
	r := chatRequest(watched{ctx, inside}, ask("a"))
	r.Header.Set("X-Fulgurite-Retry", "1")
	second.Go(func() { g.ServeHTTP(httptest.NewRecorder(), r) })
	<-inside
	leave()
	second.Wait()
	gate.pass <- struct{}{}
	first.Wait()
	require.Equal(t, http.StatusOK, reply.Code)
	require.Len(t, s.recorded(t), 1)
}

func TestWhatWasSampledForAClientThatLeftIsRecorded(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	s.gate = func(context.Context) error {
		leave() // just before the sampler returns
		return nil
	}
	g := gateway.New(s.config)
	g.ServeHTTP(httptest.NewRecorder(), chatRequest(ctx, ask("a")))
	require.Len(t, s.recorded(t), 1)
	again := httptest.NewRecorder()
	g.ServeHTTP(again, chatRequest(t.Context(), ask("a")))
	require.JSONEq(t, string(s.recorded(t)[0].Response), again.Body.String())
	require.Len(t, s.requests(), 1)
}

func TestAJoinedCallOutlivesTheRequestThatBeganIt(t *testing.T) {
	t.Parallel()
	s, gate := newTestEnv(t, nil), newSamplingGate()
	s.gate = gate.gate
	g := gateway.New(s.config)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { g.ServeHTTP(httptest.NewRecorder(), chatRequest(ctx, ask("a"))) })
	<-gate.arrived
	inside := make(chan struct{})
	second := httptest.NewRecorder()
	r := chatRequest(watched{t.Context(), inside}, ask("a"))
	r.Header.Set("X-Fulgurite-Retry", "1")
	all.Go(func() { g.ServeHTTP(second, r) })
	<-inside // it waits
	leave()
	gate.pass <- struct{}{}
	all.Wait()
	require.Equal(t, http.StatusOK, second.Code)
	require.Len(t, s.requests(), 1)
}

// watched is a context that reports when something waits for its end.
type watched struct {
	context.Context
	waiting chan struct{}
}

func (w watched) Done() <-chan struct{} {
	select {
	case <-w.waiting:
	default:
		close(w.waiting)
	}
	return w.Context.Done()
}

// slowClient is a client that takes its time to read.
type slowClient struct {
	*httptest.ResponseRecorder
	reading, read chan struct{}
}

func (l slowClient) Write(b []byte) (int, error) {
	close(l.reading)
	<-l.read
	return l.ResponseRecorder.Write(b)
}

func TestAReplyBeingWrittenIsNotGivenToAnother(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	g := gateway.New(s.config)
	slow := slowClient{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	var first sync.WaitGroup
	first.Go(func() { g.ServeHTTP(slow, chatRequest(t.Context(), ask("a"))) })
	<-slow.reading
	second := httptest.NewRecorder()
	g.ServeHTTP(second, chatRequest(t.Context(), ask("a")))
	close(slow.read)
	first.Wait()
	require.Len(t, s.recorded(t), 2)
	require.NotEqual(t, slow.Body.String(), second.Body.String())
}

func TestALostReplyIsGivenToOneAtATime(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	g := gateway.New(s.config)
	g.ServeHTTP(brokenPipe{httptest.NewRecorder()}, chatRequest(t.Context(), ask("a")))
	slow := slowClient{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	var first sync.WaitGroup
	first.Go(func() { g.ServeHTTP(slow, chatRequest(t.Context(), ask("a"))) })
	<-slow.reading // the reply that was lost
	second, third := httptest.NewRecorder(), httptest.NewRecorder()
	g.ServeHTTP(second, chatRequest(t.Context(), ask("a")))
	close(slow.read)
	first.Wait()
	g.ServeHTTP(third, chatRequest(t.Context(), ask("a")))
	require.JSONEq(t, string(s.recorded(t)[0].Response), slow.Body.String())
	require.NotEqual(t, slow.Body.String(), second.Body.String())
	require.NotEqual(t, slow.Body.String(), third.Body.String())
	require.Len(t, s.recorded(t), 3)
}
