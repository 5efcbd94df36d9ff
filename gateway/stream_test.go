package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// tokenGate lets tokens through one by one.
type tokenGate chan struct{}

func (d tokenGate) beforeToken(ctx context.Context, _ int) error {
	select {
	case <-d:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *testEnv) send(t *testing.T, p protocol, body string, headers ...string) answer {
	t.Helper()
	return s.post(t, s.base()+p.path, body, headers...)
}

func TestEveryAPIIsAnsweredWholeAndStreamed(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil)
		s.replies = [][]int32{say("7*3=21", tokenizer.End)}
		whole := s.send(t, p, p.asking("q", ""))
		require.Equal(t, http.StatusOK, whole.status, whole.body)
		require.Equal(t, "7*3=21", p.said(t, whole.body))

		streamed := s.send(t, p, p.streaming("q"), "X-Stainless-Retry-Count", "1")
		require.Equal(t, http.StatusOK, streamed.status, streamed.body)
		require.Equal(t, "text/event-stream", streamed.header.Get("Content-Type"))
		require.Equal(t, "no-cache", streamed.header.Get("Cache-Control"))
		require.Equal(t, "no", streamed.header.Get("X-Accel-Buffering"))
		require.Equal(t, whole.header.Get("X-Request-Id"), streamed.header.Get("X-Request-Id"))
		require.Equal(t, "7*3=21", p.streamedText(t, streamed.body))
		require.Equal(t, 1, strings.Count(streamed.body, "event: "+p.end)+strings.Count(streamed.body, "data: "+p.end), streamed.body)

		calls := s.recorded(t)
		require.Len(t, calls, 1, "streamed or not, it is the same request")
		require.Equal(t, whole.header.Get("X-Request-Id"), calls[0].ID)
		require.JSONEq(t, string(calls[0].Response), whole.body)
		if p.api == wire.Chat {
			require.Empty(t, calls[0].API)
		} else {
			require.Equal(t, string(p.api), calls[0].API)
		}
	})
}

func TestAStreamedCallIsRecordedAsOneThatWasAnsweredWhole(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		streamed, whole := newTestEnv(t, nil), newTestEnv(t, nil)
		streamed.send(t, p, p.streaming("q"))
		whole.send(t, p, p.asking("q", ""))
		a, b := streamed.recorded(t)[0], whole.recorded(t)[0]
		require.Equal(t, a.Key, b.Key)
		require.Equal(t, a.Completion, b.Completion)
		require.JSONEq(t, string(b.Response), string(a.Response))
	})
}

func TestTokensAreToldAsTheyAreSampled(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("1+2", tokenizer.End)}
		l := listen(t.Context(), gateway.New(s.config), address, p.path, p.streaming("q"))
		for _, text := range []string{"1", "+", "2"} {
			d <- struct{}{}
			l.await(t, `"`+text+`"`)
		}
		require.Empty(t, s.recorded(t))
		close(d)
		require.Equal(t, "1+2", p.streamedText(t, l.all()))
		require.False(t, l.broken)
	})
}

func TestTheEndOfAStreamIsToldAfterTheCallIsRecorded(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newUnservedEnv(nil)
		s.replies = [][]int32{say("12", tokenizer.End)}
		recording, record := make(chan struct{}), make(chan struct{})
		s.before = func() error {
			close(recording)
			<-record
			return nil
		}
		l := listen(t.Context(), gateway.New(s.config), address, p.path, p.streaming("q"))
		<-recording
		l.await(t, `"2"`) // all text is out
		select {
		case more := <-l.received:
			require.NotContains(t, more, p.end)
		default:
		}
		require.NotContains(t, l.String(), p.end)
		require.NotContains(t, l.String(), `"stop"`)
		close(record)
		require.Contains(t, l.all(), p.end)
	})
}

func TestAStreamWhoseCallCannotBeRecordedBreaksOffWithoutItsEnd(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newUnservedEnv(nil)
		s.replies = [][]int32{say("12", tokenizer.End), say("12", tokenizer.End)}
		g := gateway.New(s.config)
		s.before = func() error { return errors.New("disk on fire") }
		l := listen(t.Context(), g, address, p.path, p.streaming("q"), requestName, "e1")
		broken := l.all()
		require.Equal(t, http.StatusOK, l.status, "it had begun")
		require.True(t, l.broken)
		require.NotContains(t, broken, p.end)
		require.NotContains(t, broken, "disk on fire")
		sent, _, failed := strings.Cut(broken, `"error"`)
		require.True(t, failed, "it says so in its own words: %s", broken)
		sent = sent[:strings.LastIndex(sent, "\n\n")+2]

		s.before = nil
		again := listen(t.Context(), g, address, p.path, p.streaming("q"), requestName, "e1", retry, "1")
		require.True(t, strings.HasPrefix(again.all(), sent), "%s\n\n%s", sent, again)
		require.Contains(t, again.String(), p.end)
		require.Len(t, s.recorded(t), 1)
	})
}

func TestAFailureBeforeTheFirstEventIsAStatus(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil)
		s.gate = func(context.Context) error { return errors.New("no such weights") }
		a := s.send(t, p, p.streaming("q"))
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Equal(t, "infrastructure", a.header.Get("X-Fulgurite-Fault"))
		require.Equal(t, "application/json", a.header.Get("Content-Type"))
		require.Contains(t, object(t, a.body), "error")

		a = s.send(t, p, `{"stream":true}`)
		require.Equal(t, http.StatusBadRequest, a.status)
	})
}

func TestAStreamThatWasJoinedOutlivesTheClientThatBeganIt(t *testing.T) {
	t.Parallel()
	s, d := newUnservedEnv(nil), make(tokenGate)
	s.beforeToken = d.beforeToken
	s.replies = [][]int32{say("12", tokenizer.End)}
	g := gateway.New(s.config)
	p := protocols()[0]
	ctx, leave := context.WithCancel(t.Context())
	first := listen(ctx, g, address, p.path, p.streaming("q"), requestName, "e1")
	d <- struct{}{}
	first.await(t, `"1"`)
	second := listen(t.Context(), g, address, p.path, p.streaming("q"), requestName, "e1", retry, "1")
	second.await(t, `"1"`)
	leave()
	close(d)
	require.True(t, strings.HasPrefix(second.all(), withoutKeepalives(first.all())))
	require.Equal(t, "12", p.streamedText(t, second.String()))
	require.Len(t, s.requests(), 1)
}

func TestAStreamThatJoinsACallAskedForWholeIsToldItAll(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("12", tokenizer.End)}
		g := gateway.New(s.config)
		whole := listen(t.Context(), g, address, p.path, p.asking("q", ""), requestName, "e1")
		d <- struct{}{}
		streamed := listen(t.Context(), g, address, p.path, p.streaming("q"), requestName, "e1", retry, "1")
		close(d)
		require.Equal(t, p.said(t, whole.all()), p.streamedText(t, streamed.all()))
		require.Len(t, s.requests(), 1)
		require.Nil(t, s.requests()[0].Emit, "nobody asked for its tokens as they come")
	})
}

func TestASilentStreamSaysThatItIsAlive(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		impatient := func(c *gateway.Config) { c.Keepalive = time.Millisecond }
		s, d := newUnservedEnv(nil, impatient), make(tokenGate)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("12", tokenizer.End)}
		l := listen(t.Context(), gateway.New(s.config), address, p.path, p.streaming("q"))
		l.await(t, ": ")
		d <- struct{}{}
		l.await(t, `"1"`)
		spoken := l.String()
		for l.String() == spoken { // and once more
			<-l.received
		}
		close(d)
		kept := l.all()

		quiet := newUnservedEnv(nil)
		quiet.replies = [][]int32{say("12", tokenizer.End)}
		plain := listen(t.Context(), gateway.New(quiet.config), address, p.path, p.streaming("q")).all()
		require.NotEqual(t, plain, kept)
		require.Equal(t, plain, withoutKeepalives(kept))
	})
}

func TestAFailureAfterAKeepaliveIsAnEvent(t *testing.T) {
	t.Parallel()
	s := newUnservedEnv(nil, func(c *gateway.Config) { c.Keepalive = time.Millisecond })
	fail := make(chan struct{})
	s.gate = func(context.Context) error {
		<-fail
		return errors.New("no such weights")
	}
	p := protocols()[0]
	l := listen(t.Context(), gateway.New(s.config), address, p.path, p.streaming("q"))
	l.await(t, ": ")
	close(fail)
	require.Contains(t, withoutKeepalives(l.all()), `"error"`)
	require.True(t, l.broken)
	require.NotContains(t, l.String(), p.end)
}

func TestAttemptsThatEndMidStreamBreakItOff(t *testing.T) {
	t.Parallel()
	s, d := newUnservedEnv(nil), make(tokenGate)
	s.beforeToken = d.beforeToken
	p := protocols()[0]
	l := listen(t.Context(), gateway.New(s.config), address, p.path, p.streaming("q"))
	d <- struct{}{}
	l.await(t, "content")
	s.Seal(address, record.OutcomeCompleted)
	close(d)
	require.Contains(t, l.all(), "attempt_fenced")
	require.True(t, l.broken)
	require.NotContains(t, l.String(), p.end)
}

// flushTimes notes when what was written is sent.
type flushTimes struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (w *flushTimes) Flush() { w.at = append(w.at, time.Now()) }

func TestTokensThatComeTogetherAreSentTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each, interval = 3 * time.Millisecond, 10 * time.Millisecond
		s := newUnservedEnv(nil)
		s.beforeToken = func(context.Context, int) error { time.Sleep(each); return nil }
		tokens := say("24 tokens are said here", tokenizer.End)
		s.replies = [][]int32{tokens}
		p := protocols()[0]
		w, began := &flushTimes{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		gateway.New(s.config).ServeHTTP(w, chatRequest(t.Context(), p.streaming("q")))
		require.Equal(t, "24 tokens are said here", p.streamedText(t, w.Body.String()))
		require.Equal(t, each, w.at[0].Sub(began), "the first waits for nothing")
		last := len(w.at) - 1
		require.Equal(t, time.Duration(len(tokens))*each, w.at[last].Sub(began), "nor does the end")
		for i := 1; i < last; i++ {
			require.GreaterOrEqual(t, w.at[i].Sub(w.at[i-1]), interval)
		}
		require.GreaterOrEqual(t, last, 5, "the text comes as it is sampled")
	})
}
