package forwarder_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// stopped returns the address of a server that gets connections and never accepts them,
// like one that got SIGSTOP.
func stopped(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return "http://" + listener.Addr().String()
}

// refusing returns an address at which no server listens.
func refusing(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return "http://" + listener.Addr().String()
}

// moving sends the first n tries to one address and the others to another.
func moving(n int64, from, to string) func() string {
	var tries atomic.Int64
	return func() string {
		if tries.Add(1) <= n {
			return from
		}
		return to
	}
}

// impatient makes a forwarder give gateways up after a moment.
func impatient(f *forwarder.Forwarder) *forwarder.Forwarder {
	f.Probe(10*time.Millisecond, 100*time.Millisecond)
	return f
}

func TestGatewayThatIsGoneInAnyWayIsAWaitAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(*testing.T) string{
		"refuses connections":    refusing,
		"takes and says nothing": stopped,
		"stops halfway": func(t *testing.T) string {
			g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "only half of wh")
				_ = http.NewResponseController(w).Flush()
				silent(w, r)
			})
			g.dead.Store(true)
			return g.URL
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, says(http.StatusOK, "an answer"))
			s := open(t, impatient(newForwarder(t, moving(1, gone(t), g.URL))))
			require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, ask(t.Context(), s, "a question"))
			got := within(t, g.asked)
			require.Equal(t, "a question", got.body)
			require.Equal(t, "1", got.request.Header.Get(protocol.RetryHeader), "so that it answers from its journal")
			require.False(t, s.Tainted())
			require.Positive(t, s.Waited())
			if name != "refuses connections" {
				require.GreaterOrEqual(t, s.Waited(), 100*time.Millisecond, "the try that was given up counts")
			}
		})
	}
}

func TestSlowGatewayIsWaitedForWithoutLimit(t *testing.T) {
	t.Parallel()
	probes := make(chan struct{}, 1000)
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		for range 120 { // longer than a gateway may be silent
			select {
			case <-probes:
			case <-r.Context().Done():
				return
			}
		}
		says(http.StatusOK, "an answer")(w, r)
	})
	g.probed = func() { probes <- struct{}{} }
	f := newForwarder(t, g.at)
	f.Probe(50*time.Millisecond, 5*time.Second) // a busy machine delays each probe
	s := open(t, f)
	require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, ask(t.Context(), s, "a question"))
	require.Len(t, g.asked, 1, "it was asked once")
	require.Zero(t, s.Waited(), "to be slow is no fault")
}

func TestManyRequestsOfAnAgentWaitTogether(t *testing.T) {
	t.Parallel()
	g := newGateway(t, says(http.StatusOK, "an answer"))
	s := open(t, impatient(newForwarder(t, moving(8, stopped(t), g.URL))))
	began := time.Now()
	var answers []<-chan reply
	for range 8 {
		answers = append(answers, asking(t.Context(), s, "a question"))
	}
	for _, a := range answers {
		require.Equal(t, reply{status: http.StatusOK, body: "an answer"}, within(t, a))
	}
	require.False(t, s.Tainted())
	require.Equal(t, 8, s.Calls())
	require.LessOrEqual(t, s.Waited(), time.Since(began), "time they wait at once counts once")
}

func TestTimeThatTwoRequestsWaitedCountsOnce(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	g := newGateway(t, func(w http.ResponseWriter, r *http.Request) {
		<-proceed
		breaksOff(w, r)
	}, faulty, says(http.StatusOK, "an answer"))
	s := open(t, newForwarder(t, g.at))
	began := time.Now()
	slow := asking(t.Context(), s, "a question")
	within(t, g.asked)
	require.Equal(t, http.StatusOK, ask(t.Context(), s, "another").status) // after a wait
	close(proceed)
	require.Equal(t, http.StatusOK, within(t, slow).status) // its try failed only now
	require.LessOrEqual(t, s.Waited(), time.Since(began))
	require.Positive(t, s.Waited())
}

// A client with a timeout of its own gives up on a gateway that doesn't answer,
// whether or not the forwarder has noticed by then.
func TestAgentThatLeavesASilentGatewayIsTainted(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]func(*testing.T) string{"stopped": stopped, "slow": func(t *testing.T) string {
		return newGateway(t, silent).URL
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan struct{}, 100)
			url := target(t)
			f := newForwarder(t, func() string { asked <- struct{}{}; return url })
			f.Probe(time.Hour, 100*time.Millisecond)
			s := open(t, f)
			ctx, cancel := context.WithCancel(t.Context())
			answer := asking(ctx, s, "a question")
			within(t, asked)
			cancel()
			require.Error(t, within(t, answer).err)
			s.Close()
			require.Equal(t, name == "stopped", s.Tainted())
		})
	}
}

func TestEndOfAnAgentThatASilentGatewayKeptWaitingIsTainted(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	url := stopped(t)
	f := newForwarder(t, func() string { asked <- struct{}{}; return url })
	f.Probe(time.Hour, 100*time.Millisecond)
	s := open(t, f)
	answer := asking(t.Context(), s, "a question")
	within(t, asked)
	s.Close() // its time is up, say
	require.Error(t, within(t, answer).err)
	require.ErrorContains(t, s.Fault(), "does not answer")
}
