package forwarder_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// replyEvents returns a streamed reply, event by event.
func replyEvents() []string {
	return []string{
		"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}],\"error\":null}\n\n",
		"event: content_block_delta\ndata: {\"text\":\"4\"}\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":\"2\"}}]}\r\n\r\n",
		"id: 7\ndata: {\"usage\":\ndata: {\"total_tokens\":9}}\n\n",
		"data: [DONE]\n\n",
	}
}

const (
	comment = ": keepalive\n\n"
	ping    = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
)

// streamsWhole streams the pieces and then ends, or breaks off if the last one is "!". It
// does so for each request: a forwarder on a busy machine may ask more often.
func streamsWhole(pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { streams(closedAfter(pieces...))(w, r) }
}

// withoutKeepalives returns a stream without its keepalives.
func withoutKeepalives(stream string) string {
	return strings.NewReplacer(comment, "", ping, "").Replace(stream)
}

func TestEventsArriveWholeAndAtOnce(t *testing.T) {
	t.Parallel()
	pieces := make(chan string)
	s := open(t, newForwarder(t, newGateway(t, streams(pieces)).at))
	lines, end := listen(t, s)
	pieces <- "data: one\n\n" // and no more before the agent has it
	require.Equal(t, "data: one", within(t, lines))
	require.Empty(t, within(t, lines))
	pieces <- "event: half"
	pieces <- " a line\ndata: two\n"
	pieces <- "\ndata: three\n\n"
	for _, line := range []string{"event: half a line", "data: two", "", "data: three", ""} {
		require.Equal(t, line, within(t, lines))
	}
	before := s.Progress()
	for _, sign := range []string{comment, ping} {
		pieces <- sign
		for line := range strings.Lines(sign) {
			require.Equal(t, strings.TrimSpace(line), within(t, lines))
		}
	}
	require.GreaterOrEqual(t, s.Progress(), before+1, "a keepalive is progress")
	close(pieces)
	require.NoError(t, within(t, end))
	s.Close()
	require.Equal(t, 1, s.Calls())
	require.NoError(t, s.Fault())
	require.Zero(t, s.Waited())
}

func TestStreamGoesOnAfterTheDeathOfItsGateway(t *testing.T) {
	t.Parallel()
	all := replyEvents()
	for n := range all {
		t.Run(fmt.Sprint("after event ", n), func(t *testing.T) {
			t.Parallel()
			dies := append(append([]string{comment}, all[:n]...), all[n][:5], "!")
			g := newGateway(t, streamsWhole(dies...), faulty, streamsWhole(append([]string{ping, comment}, all...)...))
			s := open(t, newForwarder(t, g.at))
			got := ask(t.Context(), s, "a question")
			require.NoError(t, got.err)
			require.Equal(t, strings.Join(all, ""), withoutKeepalives(got.body))
			require.NoError(t, s.Fault(), "it waited, and saw nothing")
			require.Positive(t, s.Waited())
			require.Equal(t, 1, s.Calls())
			first := within(t, g.asked).request.Header
			require.Empty(t, first.Get(protocol.RetryHeader))
			for _, retry := range []string{"1", "2"} {
				again := within(t, g.asked)
				require.Equal(t, "a question", again.body)
				require.Equal(t, retry, again.request.Header.Get(protocol.RetryHeader))
				require.Equal(t, first.Get(protocol.RequestNameHeader), again.request.Header.Get(protocol.RequestNameHeader))
			}
		})
	}
}

func TestStreamOfAGatewayThatHangsGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	all := replyEvents()
	pieces := make(chan string)
	defer close(pieces)
	hung := newGateway(t, streams(pieces))
	next := newGateway(t, streamsWhole(all...))
	s := open(t, impatient(newForwarder(t, moving(1, hung.URL, next.URL))))
	answer := asking(t.Context(), s, "a question")
	pieces <- all[0]
	pieces <- all[1]
	hung.dead.Store(true)
	got := within(t, answer)
	require.NoError(t, got.err)
	require.Equal(t, strings.Join(all, ""), got.body)
	require.NoError(t, s.Fault())
	require.Positive(t, s.Waited())
}

func TestStreamThatIsHeldUpIsAFaultUntilItGoesOn(t *testing.T) {
	t.Parallel()
	all := replyEvents()
	rest := make(chan string)
	g := newGateway(t, streamsWhole(all[0], "!"), streams(rest))
	s := open(t, newForwarder(t, g.at))
	lines, end := listen(t, s)
	within(t, lines)
	within(t, g.asked)
	within(t, g.asked)
	require.Error(t, s.Fault(), "an agent that ended now would have given up on a call")
	rest <- all[0]
	rest <- all[1]
	within(t, lines) // the blank one
	within(t, lines)
	require.NoError(t, s.Fault())
	waited := s.Waited()
	rest <- all[4]
	close(rest)
	go func() {
		for range lines {
		}
	}()
	require.NoError(t, within(t, end))
	require.Equal(t, waited, s.Waited(), "a stream that flows is no wait")
}

func TestOtherBytesThanTheAgentHasEndItAndTaint(t *testing.T) {
	t.Parallel()
	all := replyEvents()
	for name, again := range map[string]http.HandlerFunc{
		"another text":       streamsWhole(all[0], "event: content_block_delta\ndata: {\"text\":\"5\"}\n\n", all[2]),
		"longer events":      streamsWhole("x"+all[0], all[1], all[2]),
		"an early end":       streamsWhole(all[0]),
		"no end":             streamsWhole(all[0], all[1][:9]),
		"a refusal":          says(http.StatusBadRequest, `{"error":{"code":"invalid_value"}}`),
		"no stream any more": says(http.StatusOK, strings.Join(all, "")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, streamsWhole(all[0], all[1], "!"), again)
			s := open(t, newForwarder(t, g.at))
			got := ask(t.Context(), s, "a question")
			require.Error(t, got.err, "a cut reply must not look whole")
			require.Equal(t, all[0]+all[1], got.body, "nothing of the other reply")
			require.ErrorContains(t, s.Fault(), "differs from the one that the agent has in part")
			require.Zero(t, s.Calls())
			require.Len(t, g.asked, 2)
		})
	}
}

const (
	ours      = "data: {\"error\":{\"message\":\"oh dear\",\"type\":\"server_error\",\"code\":null}}\n\n"
	overload  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"\"}}\n\n"
	responses = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\"}}}\n\n"
	own       = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"\"}}\n\n"
)

func TestFaultThatEndsAStreamIsNotShown(t *testing.T) {
	t.Parallel()
	all := replyEvents()
	for name, complaint := range map[string]string{"chat": ours, "messages": overload, "responses": responses, "of the agent, once": own} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, streamsWhole(all[0], complaint, comment, "!"), streamsWhole(all[0], complaint, "!"), streamsWhole(all...))
			s := open(t, newForwarder(t, g.at))
			got := ask(t.Context(), s, "a question")
			if name == "of the agent, once" {
				require.Equal(t, all[0]+comment+complaint, got.body, "blamed twice, it has to hear it")
				require.NoError(t, got.err)
			} else {
				require.NoError(t, got.err)
				require.Equal(t, strings.Join(all, ""), withoutKeepalives(got.body))
			}
			require.NoError(t, s.Fault())
		})
	}
}

func TestFaultInAStreamThatGoesOnIsVisible(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]string{"last": {replyEvents()[0], ours}, "in the middle": {replyEvents()[0], ours, replyEvents()[1]}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, newForwarder(t, newGateway(t, streamsWhole(pieces...)).at))
			require.Equal(t, reply{status: http.StatusOK, body: strings.Join(pieces, "")}, ask(t.Context(), s, ""))
			require.ErrorContains(t, s.Fault(), "reported a fault")
		})
	}
	s := open(t, newForwarder(t, newGateway(t, streamsWhole(own)).at))
	require.Equal(t, own, ask(t.Context(), s, "").body)
	require.NoError(t, s.Fault(), "it is the agent's own")
}

func TestFenceInTheMiddleOfAStreamEndsTheAgent(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]http.HandlerFunc{
		"in the body": says(http.StatusConflict, `{"error":{"code":"attempt_fenced"}}`),
		"in a header": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Fulgurite-Code", "attempt_fenced")
			says(http.StatusConflict, `{"type":"error","error":{"type":"invalid_request_error"}}`)(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, newForwarder(t, newGateway(t, streamsWhole(replyEvents()[0], own, "!"), refusal).at))
			require.Error(t, ask(t.Context(), s, "").err)
			require.ErrorContains(t, s.Fault(), "fenced")
			require.Error(t, s.Context().Err())
		})
	}
}

func TestAgentThatReadsNothingDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	sent := make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 16<<20)+"\n\n") // more than a connection holds
		_ = http.NewResponseController(w).Flush()
		close(sent)
	})
	s := open(t, newForwarder(t, g.at))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.BaseURL()+"/chat/completions", strings.NewReader("{}"))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer key")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	within(t, sent) // the forwarder has it, and the agent does not read it
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Close()
	}()
	within(t, ended)
}

// The stream is the same wherever and however often a gateway dies, and whatever
// keepalives it sends.
func TestAnyBreaksAndKeepalivesLeaveTheStreamAsItIs(t *testing.T) {
	t.Parallel()
	var replies []http.HandlerFunc
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		turn := replies[0]
		replies = replies[1:]
		turn(w, r)
	}))
	gateway.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
	t.Cleanup(gateway.Close)
	f := newForwarder(t, func() string { return gateway.URL })
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.SampledFrom(replyEvents()), 1, 6).Draw(t, "events")
		signs := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", comment, ping}), 64, 64)
		replies = nil
		for range rapid.IntRange(0, 2).Draw(t, "deaths") {
			n := rapid.IntRange(0, len(all)-1).Draw(t, "whole events")
			cut := rapid.IntRange(0, len(all[n])-1).Draw(t, "bytes of the next")
			replies = append(replies, streamsWhole(append(mixed(all[:n], signs.Draw(t, "signs")), all[n][:cut], "!")...))
		}
		replies = append(replies, streamsWhole(mixed(all, signs.Draw(t, "signs"))...))
		s, err := f.Open(context.Background(), address("demo"), "key")
		require.NoError(t, err)
		defer s.Close()
		got := ask(context.Background(), s, "a question")
		require.NoError(t, got.err)
		require.Equal(t, strings.Join(all, ""), withoutKeepalives(got.body))
		require.NoError(t, s.Fault())
		require.Empty(t, replies)
	})
}

// mixed puts signs of life between events.
func mixed(events, signs []string) []string {
	var out []string
	for i, e := range events {
		out = append(out, signs[i], e)
	}
	return append(out, signs[len(events)])
}

func FuzzEvents(f *testing.F) {
	for _, seed := range append(replyEvents(), comment, ping, ours, overload, responses, own, "\n", "\r\n\r\n", "data: {\"error\":1}\n\n") {
		f.Add(seed + "data: next\n\n")
	}
	f.Fuzz(func(t *testing.T, stream string) {
		events, rest := forwarder.SplitEvents(strings.NewReader(stream))
		require.Equal(t, stream, strings.Join(events, "")+rest, "nothing is lost or added")
		for _, e := range events {
			require.Regexp(t, `\n\r*\n$|^\r*\n$`, e)
			require.Regexp(t, `^(\r*\n|(.+\r*\n)+\r*\n)$`, strings.ToValidUTF8(e, "?"), "one event, not two")
		}
		require.NotContains(t, rest, "\n\n")
	})
}
