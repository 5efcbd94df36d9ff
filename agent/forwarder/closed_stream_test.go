package forwarder_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// readFirst asks for a stream, and returns once the agent has its first event; close
// closes the stream.
func readFirst(t *testing.T, s *forwarder.Session) (closeStream func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.BaseURL()+"/chat/completions", strings.NewReader(`{"stream":true}`))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer key")
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	require.NoError(t, err)
	_, err = io.ReadFull(response.Body, make([]byte, len(replyEvents()[0])))
	require.NoError(t, err)
	return func() {
		cancel()
		_ = response.Body.Close()
	}
}

func closing(s *forwarder.Session) <-chan struct{} {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close()
	}()
	return closed
}

func TestAStreamThatTheAgentClosesIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *forwarder.Session, closeStream func()) (closed <-chan struct{}){
		"it closes the stream, then it ends": func(s *forwarder.Session, closeStream func()) <-chan struct{} {
			closeStream()
			return closing(s)
		},
		"it ends in the middle": func(s *forwarder.Session, closeStream func()) <-chan struct{} {
			closed := closing(s)
			<-s.Context().Done()
			closeStream()
			return closed
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, pieces := replyEvents(), make(chan string)
			g := newGateway(t, streams(pieces))
			s := open(t, newForwarder(t, g.at))
			first := make(chan func())
			go func() { first <- readFirst(t, s) }()
			pieces <- all[0]
			closed := end(s, <-first)
			for _, piece := range all[1:] {
				pieces <- piece // nothing takes it if nobody reads
			}
			select {
			case <-closed:
				require.Fail(t, "the session is closed before the reply is there")
			default:
			}
			close(pieces)
			within(t, closed)
			require.NoError(t, s.Fault())
			require.Zero(t, s.Calls(), "the agent did not get it whole")
			name := within(t, g.asked).request.Header.Get(protocol.RequestNameHeader)
			require.Equal(t, []string{name}, s.PartlyRead())
			require.Empty(t, g.asked, "asked once")
		})
	}
}

func TestTheNextRequestWaitsForAStreamThatTheAgentClosed(t *testing.T) {
	t.Parallel()
	all, pieces := replyEvents(), make(chan string)
	g := newGateway(t, streams(pieces), says(http.StatusOK, "an answer"))
	s := open(t, newForwarder(t, g.at))
	first := make(chan func())
	go func() { first <- readFirst(t, s) }()
	pieces <- all[0]
	(<-first)()
	pieces <- all[1]
	within(t, g.asked)
	for s.ClosedStreams() == 0 {
		pieces <- comment // until the forwarder has noticed
	}
	next := asking(t.Context(), s, "the next")
	pieces <- all[2]
	require.Empty(t, g.asked)
	close(pieces)
	require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, within(t, next))
	require.Equal(t, "the next", within(t, g.asked).body)
}

func TestAClosedStreamSurvivesTheDeathOfItsGateway(t *testing.T) {
	t.Parallel()
	all, pieces := replyEvents(), make(chan string)
	g := newGateway(t, streams(pieces), faulty, streamsWhole(all...))
	s := open(t, newForwarder(t, g.at))
	first := make(chan func())
	go func() { first <- readFirst(t, s) }()
	pieces <- all[0]
	(<-first)()
	for s.ClosedStreams() == 0 {
		pieces <- comment
	}
	closed := closing(s)
	pieces <- "!"
	within(t, closed)
	require.NoError(t, s.Fault(), "the agent saw nothing of it")
	require.Len(t, s.PartlyRead(), 1)
	var names []string
	for range 3 {
		names = append(names, within(t, g.asked).request.Header.Get(protocol.RequestNameHeader))
	}
	require.Equal(t, []string{names[0], names[0], names[0]}, names)
}

func TestAClosedStreamWhoseRestDiffersTaints(t *testing.T) {
	t.Parallel()
	all, pieces := replyEvents(), make(chan string)
	g := newGateway(t, streams(pieces), streamsWhole(all[1:]...))
	s := open(t, newForwarder(t, g.at))
	first := make(chan func())
	go func() { first <- readFirst(t, s) }()
	pieces <- all[0]
	(<-first)()
	for s.ClosedStreams() == 0 {
		pieces <- comment
	}
	pieces <- "!"
	within(t, closing(s))
	require.Error(t, s.Fault(), "what the agent read is not what is on record")
	require.Empty(t, s.PartlyRead())
}

func TestAStreamThatHadNotBegunIsGivenUp(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, comment)
		_ = http.NewResponseController(w).Flush()
		silent(w, r)
		close(left)
	})
	s := open(t, newForwarder(t, g.at))
	lines, _ := listen(t, s)
	within(t, lines) // a sign of life is no part of the reply
	closed := closing(s)
	for range lines { // to its end
	}
	within(t, left)
	within(t, closed)
	require.NoError(t, s.Fault())
	require.Empty(t, s.PartlyRead())
}

func TestAForwarderThatClosesWaitsForNoClosedStream(t *testing.T) {
	t.Parallel()
	pieces := make(chan string)
	g := newGateway(t, streams(pieces))
	t.Cleanup(func() { close(pieces) }) // before the gateway is closed
	f := newForwarder(t, g.at)
	s := open(t, f)
	first := make(chan func())
	go func() { first <- readFirst(t, s) }()
	pieces <- replyEvents()[0]
	(<-first)()
	for s.ClosedStreams() == 0 {
		pieces <- comment
	}
	closed := closing(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = f.Close(ctx) // it could not drain
	within(t, closed)
	require.Error(t, s.Fault())
}

// The report of a session whose stream is still sampled may take longer than any fault.
func TestAnExternalSessionReportsTheStreamsThatItsAgentClosed(t *testing.T) {
	t.Parallel()
	all, pieces := replyEvents(), make(chan string)
	g := newGateway(t, streams(pieces))
	s := openExternal(t, newForwarder(t, g.at))
	first := make(chan func())
	go func() { first <- readFirst(t, s) }()
	pieces <- all[0]
	(<-first)()
	report := make(chan forwarder.SessionReport, 1)
	go func() {
		got, err := forwarder.CloseExternal(t.Context(), s.BaseURL(), "key", nil)
		if err == nil {
			report <- got
		}
	}()
	<-s.Context().Done()
	pieces <- all[4]
	close(pieces)
	got := within(t, report)
	require.Empty(t, got.Fault)
	require.Equal(t, []string{within(t, g.asked).request.Header.Get(protocol.RequestNameHeader)}, got.PartlyRead)
}
