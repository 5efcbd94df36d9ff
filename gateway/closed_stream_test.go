package gateway_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// closeAfter asks for a stream, and closes it once it has the text; ended is closed when
// the gateway has done all that the request began.
func (s *testEnv) closeAfter(t *testing.T, g *gateway.Gateway, p protocol, body, text string, headers ...string) (ended <-chan struct{}) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	l := listen(ctx, g, address, p.path, body, headers...)
	l.await(t, text)
	leave()
	synctest.Wait() // until the gateway has noticed
	return l.ended
}

// inBubble is onProtocols with a claim that can wait until nothing goes on.
func inBubble(t *testing.T, claim func(t *testing.T, p protocol), but ...wire.API) {
	t.Helper()
	onProtocols(t, func(t *testing.T, p protocol) {
		synctest.Test(t, func(t *testing.T) { claim(t, p) })
	}, but...)
}

func TestAStreamThatItsClientClosesIsRecordedWhole(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate, 16)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("123", tokenizer.End)}
		g := gateway.New(s.config)
		d <- struct{}{}
		ended := s.closeAfter(t, g, p, p.streaming("q"), `"1"`)
		require.Empty(t, s.recorded(t))
		close(d)
		<-ended
		calls := s.recorded(t)
		require.Len(t, calls, 1)
		require.Equal(t, say("123", tokenizer.End), calls[0].Completion)
		require.True(t, calls[0].PartlyRead)
		require.Contains(t, string(calls[0].Response), "123")
		require.Len(t, s.requests(), 1)
	})
}

func TestEachStreamThatIsClosedIsAnotherSample(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p protocol) {
		uncut, cut := newUnservedEnv(nil), newUnservedEnv(nil)
		var closed chan struct{}
		cut.beforeToken = func(_ context.Context, n int) error {
			if n > 0 {
				<-closed
			}
			return nil
		}
		g, other := gateway.New(cut.config), gateway.New(uncut.config)
		for range 5 {
			listen(t.Context(), other, address, p.path, p.streaming("q")).all()
			closed = make(chan struct{})
			ended := cut.closeAfter(t, g, p, p.streaming("q"), "data: ")
			close(closed)
			<-ended
		}
		require.Len(t, cut.recorded(t), 5)
		for i, want := range uncut.recorded(t) {
			require.Empty(t, cmp.Diff(want.Call, cut.recorded(t)[i].Call, sameCall, cmpopts.IgnoreFields(record.Call{}, "PartlyRead")))
		}
	})
}

// It depends neither on the moment in which a client closes a stream nor on how fast the
// sampler is what the next request gets.
func TestTheNextRequestWaitsForAClosedStream(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(func(a *record.Attempt) { a.Terms.TokenBudget = 9 }), make(tokenGate, 16)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("12345", tokenizer.End), say("789", tokenizer.End)}
		g := gateway.New(s.config)
		d <- struct{}{}
		ended := s.closeAfter(t, g, p, p.streaming("q"), `"1"`)
		next := listen(t.Context(), g, address, p.path, request(message("user", "q"), message("assistant", "12345"), message("user", "on")))
		synctest.Wait()
		require.Len(t, s.requests(), 1)
		close(d)
		<-ended
		require.Contains(t, next.all(), "789")
		require.Equal(t, 3, s.requests()[1].MaxTokens, "what the closed one left")
		require.Equal(t, []int{-1, 0}, s.parents(t))
	}, wire.Completions, wire.Responses, wire.Messages)
}

func TestAMarkedRetryOfAClosedStreamGetsItsCall(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p protocol) {
		for _, recorded := range []bool{false, true} {
			s, d := newUnservedEnv(nil), make(tokenGate, 16)
			s.beforeToken = d.beforeToken
			g := gateway.New(s.config)
			d <- struct{}{}
			ended := s.closeAfter(t, g, p, p.streaming("q"), "data: ")
			if recorded {
				close(d)
				<-ended
			}
			again := listen(t.Context(), g, address, p.path, p.streaming("q"), "X-Stainless-Retry-Count", "1")
			if !recorded {
				again.await(t, "data: ")
				close(d)
			}
			again.all()
			<-ended
			require.Len(t, s.requests(), 1)
			require.Len(t, s.recorded(t), 1)
			require.Equal(t, recorded, s.recorded(t)[0].PartlyRead, "the retry read the rest")
		}
	})
}

func TestEveryChoiceOfAClosedStreamIsRecorded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate)
		s.beforeToken = func(ctx context.Context, n int) error {
			if n == 0 {
				return nil
			}
			return d.beforeToken(ctx, n)
		}
		s.replies = [][]int32{say("12", tokenizer.End), say("12", tokenizer.End), say("12", tokenizer.End)}
		g := gateway.New(s.config)
		ended := s.closeAfter(t, g, p, p.asking("q", `"stream":true,"n":3,`), `"1"`)
		close(d)
		<-ended
		require.Len(t, s.recorded(t), 3)
		for _, c := range s.recorded(t) {
			require.True(t, c.PartlyRead)
		}
	}, wire.Responses, wire.Messages)
}

// A forwarder reads a stream to its end that its agent has closed. So if it leaves, the
// connection broke, and it asks again.
func TestAStreamOfAForwarderThatBreaksIsNoOtherSample(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate, 16)
		s.beforeToken = d.beforeToken
		g := gateway.New(s.config)
		d <- struct{}{}
		<-s.closeAfter(t, g, p, p.streaming("q"), "data: ", requestName, "e1")
		require.Empty(t, s.recorded(t))
		close(d)
		require.Contains(t, listen(t.Context(), g, address, p.path, p.streaming("q"), requestName, "e1", retry, "1").all(), p.end)
		require.Len(t, s.recorded(t), 1)
		require.False(t, s.recorded(t)[0].PartlyRead)
		require.Zero(t, s.recorded(t)[0].Occurrence)
	})
}

func TestAStreamThatHadNotBegunIsGivenUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate)
		s.beforeToken = d.beforeToken
		g := gateway.New(s.config)
		<-s.closeAfter(t, g, p, p.streaming("q"), ": ") // a keepalive
		require.Empty(t, s.recorded(t))
		close(d)
		listen(t.Context(), g, address, p.path, p.streaming("q")).all()
		require.Equal(t, s.requests()[0].Seed, s.requests()[1].Seed)
		require.Zero(t, s.recorded(t)[0].Occurrence)
	})
}
