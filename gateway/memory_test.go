package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/record"
)

// longDialog is the dialog of one sample's attempt, turn after turn.
type longDialog struct {
	address  record.Address
	messages []string
	replies  []string // bodies
}

// turn adds a user's turn of some KB and the reply to it.
func (d *longDialog) turn(t *testing.T, g http.Handler) {
	t.Helper()
	d.messages = append(d.messages, message("user", fmt.Sprintf("%d.%d %s", d.address.Sample, len(d.replies), strings.Repeat("a word ", 400))))
	body := d.ask(t, g, len(d.messages))
	d.replies, d.messages = append(d.replies, body), append(d.messages, message("assistant", content(t, body)))
}

// ask sends the dialog's first messages, and returns the body of the reply.
func (d *longDialog) ask(t *testing.T, g http.Handler, messages int, headers ...string) string {
	t.Helper()
	r := chatRequest(t.Context(), request(d.messages[:messages]...))
	r.URL.Path = "/r/" + d.address.String() + "/v1/chat/completions"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

// longDialogs begins an attempt for each dialog.
func (s *testEnv) longDialogs(n, attempt int) []*longDialog {
	out := make([]*longDialog, n)
	for i := range out {
		a := s.attempts[address]
		a.Sample, a.Address.Attempt = i, attempt
		s.Begin(a)
		out[i] = &longDialog{address: a.Address}
	}
	return out
}

func TestMemoryStaysBelowItsBoundAndEveryAttemptGoesOnFromTheJournal(t *testing.T) {
	t.Parallel()
	const attempts, turns, bound = 12, 6, 256 << 10
	play := func(memory int64) (*testEnv, []*longDialog, int) {
		s := newUnservedEnv(nil, func(c *gateway.Config) { c.Memory = memory })
		g := gateway.New(s.config)
		dialogs, most := s.longDialogs(attempts, 1), 0
		for range turns {
			for _, d := range dialogs {
				d.turn(t, g)
				bytes, _ := g.Memory()
				most = max(most, int(bytes))
			}
		}
		for _, d := range dialogs {
			require.Equal(t, d.replies[turns-1], d.ask(t, g, 2*turns-1, "X-Fulgurite-Retry", "1"), "a retry has the same bytes")
		}
		return s, dialogs, most
	}
	free, _, needed := play(0)
	tight, dialogs, most := play(bound)
	require.Greater(t, needed, 3*bound, "they do not fit")
	require.LessOrEqual(t, most, bound)
	require.Greater(t, most, bound/2, "what fits is kept")
	require.Greater(t, tight.attemptReads(), attempts*turns/2, "and what does not is read again")
	require.Equal(t, attempts, free.attemptReads())
	for _, d := range dialogs {
		require.Equal(t, free.memory.calls[d.address], tight.memory.calls[d.address], "tokens and bytes are those of a gateway with memory for all")
		require.Equal(t, turns-2, tight.memory.calls[d.address][turns-1].Parent)
	}

	// What an earlier attempt recorded is replayed turn by turn, whatever is dropped between.
	g := gateway.New(tight.config)
	for i, d := range tight.longDialogs(attempts, 2) {
		d.messages = dialogs[i].messages
		dialogs[i].address = d.address
	}
	for turn := range turns {
		for _, d := range dialogs {
			require.Equal(t, d.replies[turn], d.ask(t, g, 2*turn+1), "a replay has the same bytes")
			bytes, _ := g.Memory()
			require.LessOrEqual(t, bytes, int64(bound))
		}
	}
	require.Equal(t, int64(attempts*turns), g.Stats().Replayed)
	require.Zero(t, g.Stats().Sampled)
}

func TestAttemptsAreDroppedForTheirBytesWhileOthersMakeCalls(t *testing.T) {
	t.Parallel()
	const attempts, turns, bound = 16, 5, 96 << 10
	s := newUnservedEnv(nil, func(c *gateway.Config) { c.Memory = bound })
	g := gateway.New(s.config)
	dialogs := s.longDialogs(attempts, 1)
	var all sync.WaitGroup
	for _, d := range dialogs {
		look := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/r/"+d.address.String()+"/v1/models", nil)
		look.Header.Set("Authorization", "Bearer "+key)
		all.Go(func() {
			for range turns {
				d.turn(t, g)
			}
		})
		all.Go(func() {
			for range turns {
				g.ServeHTTP(httptest.NewRecorder(), look)
			}
		})
	}
	all.Wait()
	bytes, _ := g.Memory()
	require.LessOrEqual(t, bytes, int64(bound))
	require.Greater(t, s.attemptReads(), attempts)
	require.Len(t, s.requests(), attempts*turns, "nothing was sampled twice")
	for _, d := range dialogs {
		calls := s.memory.calls[d.address]
		require.Len(t, calls, turns)
		for i, c := range calls {
			require.Equal(t, i-1, c.Parent)
			require.Equal(t, d.replies[i], string(c.Response))
		}
		require.Len(t, record.Merge(record.Calls(calls)), 1, "each call begins with the tokens of the one before")
	}
}

// forgetful is a journal that keeps no calls, so that only the gateway does.
type forgetful struct{ *memory }

func (forgetful) AppendCall(context.Context, *record.Exchange) error { return nil }

func TestAttemptsWeighWhatTheyTakeOfTheHeap(t *testing.T) { //nolint:paralleltest // nobody else may use the heap
	const attempts, turns = 32, 24
	s := newUnservedEnv(nil, func(c *gateway.Config) { c.Journal = forgetful{c.Journal.(*memory)} })
	g := gateway.New(s.config)
	dialogs := s.longDialogs(attempts, 1)
	before := heap()
	for _, d := range dialogs {
		for range turns {
			d.turn(t, g)
		}
		d.messages, d.replies = nil, nil
		s.asked = nil
	}
	after := heap()
	bytes, kept := g.Memory()
	took := after - before
	t.Logf("weight %d KB, heap %d KB", bytes>>10, took>>10)
	require.Equal(t, attempts, kept)
	require.Greater(t, bytes, took*2/3, "no less than it takes")
	require.Less(t, bytes, took*2, "nor much more")
	require.Less(t, bytes, int64(attempts*turns*(4*4*2800+4<<10)), "turns are kept once")
	runtime.KeepAlive(g)
}

// heap returns how many bytes are reachable.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
