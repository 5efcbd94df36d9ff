package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// long returns a reply with a character of several bytes and a tool call.
func long() []int32 {
	return say("1+é=", tokenizer.ToolCall, "7*3", tokenizer.End)
}

const offer = `"stream":true,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}}],`

// richly returns a request for a stream, with tools if the API has them.
func (p protocol) richly(text string) string {
	switch p.end {
	case "response.completed":
		return p.asking(text, `"stream":true,"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}],`)
	case "message_stop":
		return p.asking(text, `"stream":true,"tools":[{"name":"f","input_schema":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]}}],`)
	}
	return p.asking(text, offer+`"stream_options":{"include_usage":true},`)
}

func TestAStreamHasTheSameBytesWheneverItIsAskedFor(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		onJournals(t, func(t *testing.T, s *testEnv) {
			d := make(tokenGate)
			s.beforeToken = d.beforeToken
			s.replies = [][]int32{long()}
			g := gateway.New(s.config)
			live := listen(t.Context(), g, address, p.path, p.richly("q"), requestName, "e1")
			d <- struct{}{}
			d <- struct{}{}
			live.await(t, `"+"`)
			joined := listen(t.Context(), g, address, p.path, p.richly("q"), requestName, "e1", retry, "1")
			joined.await(t, `"+"`)
			close(d)
			want := live.all()
			require.Contains(t, want, p.end)
			require.Equal(t, want, joined.all())

			ask := func(attempt int, headers ...string) string {
				return listen(t.Context(), gateway.New(s.config), at(attempt), p.path, p.richly("q"), headers...).all()
			}
			require.Equal(t, want, ask(1, requestName, "e1", retry, "1"), "from the record, after a restart")
			s.next(t, 2)
			require.Equal(t, want, ask(2), "replayed")
			require.Equal(t, want, ask(2, requestName, "e2", "X-Stainless-Retry-Count", "1"), "and asked for again")
			require.Equal(t, []int{1}, s.from(t, 2))
			require.Len(t, s.requests(), 1)
		})
	})
}

func TestAStreamGoesOnWhereAGatewayDied(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		for died := range len(long()) {
			t.Run(fmt.Sprint(died), func(t *testing.T) {
				t.Parallel()
				s := newUnservedEnv(nil)
				d := make(tokenGate)
				s.beforeToken = d.beforeToken
				s.replies = [][]int32{long(), long()}
				dying := listen(t.Context(), gateway.New(s.config), address, p.path, p.richly("q"), requestName, "e1")
				for range died {
					d <- struct{}{}
				}
				// From here on, the first gateway is not heard of any more. The clock
				// goes on.
				z := s.zombie(time.Hour)
				z.replies = [][]int32{long()}
				whole := listen(t.Context(), z, address, p.path, p.richly("q"), requestName, "e1", retry, "1").all()
				require.Contains(t, whole, p.end)
				require.True(t, strings.HasPrefix(whole, dying.String()), "%s\n\n%s", dying, whole)
				close(d)
				require.Equal(t, whole, dying.all(), "it wakes up and has nothing else to say")
				require.Len(t, s.recorded(t), 1)
			})
		}
	})
}

func TestALateStreamThatToldOtherTokensBreaksOff(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("12", tokenizer.End)}
		late := listen(t.Context(), gateway.New(s.config), address, p.path, p.streaming("q"), requestName, "e1")
		d <- struct{}{}
		late.await(t, `"1"`)
		z := s.zombie(0)
		z.replies = [][]int32{say("34", tokenizer.End)} // of an engine that does not repeat itself
		require.Contains(t, listen(t.Context(), z, address, p.path, p.streaming("q"), requestName, "e1", retry, "1").all(), p.end)
		close(d)
		require.Contains(t, late.all(), `"error"`)
		require.True(t, late.broken)
		require.NotContains(t, late.String(), p.end)
	})
}

func TestAStreamIsNotContinuedWithAnotherCall(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s, d := newUnservedEnv(nil), make(tokenGate)
		s.beforeToken = d.beforeToken
		s.replies = [][]int32{say("12", tokenizer.End)}
		late := listen(t.Context(), gateway.New(s.config), address, p.path, p.streaming("q"), requestName, "e1")
		d <- struct{}{}
		late.await(t, `"1"`)
		z := s.zombie(0)
		other := listen(t.Context(), z, address, p.path, p.streaming("q"), requestName, "e2").all()
		require.Contains(t, other, p.end)
		close(d)
		require.Contains(t, late.all(), `"error"`, "its occurrence is another request's now")
		require.True(t, late.broken)
		require.NotContains(t, late.String(), p.end)
		again := listen(t.Context(), z, address, p.path, p.streaming("q"), requestName, "e1", retry, "1").all()
		require.Contains(t, again, p.end)
		require.NotEqual(t, other, again)
		require.Len(t, s.recorded(t), 2)
	})
}

func TestAReplayIsDatedAsItWasSampled(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newUnservedEnv(nil, func(c *gateway.Config) {
			c.Now = func() time.Time { return start.Add(2 * time.Hour) }
		})
		ask := func(attempt int, body string) string {
			return listen(t.Context(), gateway.New(s.config), at(attempt), p.path, body).all()
		}
		want := ask(1, p.streaming("q"))
		later := s.attempts[address]
		later.Attempt, later.Begun = 2, start.Add(time.Hour)
		s.Begin(later)
		require.Equal(t, want, ask(2, p.streaming("q")))
		require.Equal(t, want, listen(t.Context(), gateway.New(s.config), at(2), p.path, p.streaming("q"), "X-Stainless-Retry-Count", "1").all(), "and from the record of the later attempt")
		require.Len(t, s.requests(), 1)
	})
}

func TestACallThatWasAskedForWholeIsStreamedFromTheRecord(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil)
		whole := s.send(t, p, p.asking("q", ""), requestName, "e1")
		streamed := s.send(t, p, p.streaming("q"), requestName, "e1", retry, "1")
		require.Equal(t, p.said(t, whole.body), p.streamedText(t, streamed.body))
		again := s.send(t, p, p.asking("q", ""), requestName, "e1", retry, "2")
		require.Equal(t, whole.body, again.body)
		require.Len(t, s.requests(), 1)
	})
}

func TestThoughtsAreStreamedBeforeTheTextAndTheSameAgain(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil, think)
		s.replies = [][]int32{say("hmm", tokenizer.Argument, "42", tokenizer.End)}
		want := s.send(t, p, p.streaming("q"), requestName, "e1")
		require.Contains(t, want.body, p.end)
		if p.api != "completions" {
			require.Equal(t, "42", p.streamedText(t, want.body))
			require.Less(t, strings.Index(want.body, "hmm"), strings.Index(want.body, `"4"`), want.body)
		}
		s.restart(t)
		require.Equal(t, want.body, s.send(t, p, p.streaming("q"), requestName, "e1", retry, "1").body)
	})
}

func TestLongRepliesAreStreamedWhole(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newUnservedEnv(nil, func(c *gateway.Config) {})
		a := s.attempts[address]
		a.Terms.MaxTokens = 5000
		s.Begin(a)
		text := strings.Repeat("0123456789", 499)
		s.replies = [][]int32{say(text, tokenizer.End)}
		body := strings.Replace(p.streaming("q"), `"max_tokens":100`, `"max_tokens":5000`, 1)
		require.Equal(t, text, p.streamedText(t, listen(t.Context(), gateway.New(s.config), address, p.path, strings.Replace(body, `"prompt"`, `"max_tokens":5000,"prompt"`, 1)).all()))
	})
}
