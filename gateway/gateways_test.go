package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

// zombie is a gateway over the journal of a testEnv, with its own sampler and clock, that
// doesn't know that it was replaced.
type zombie struct {
	*gateway.Gateway
	*script
}

func (s *testEnv) zombie(late time.Duration) zombie {
	z := zombie{script: &script{}}
	c := s.config
	c.Sampler = z.script
	c.Now = func() time.Time { return start.Add(late) }
	z.Gateway = gateway.New(c)
	return z
}

// asked returns the zombie's answer.
func (z zombie) asked(t *testing.T, attempt int, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := chatRequest(t.Context(), body)
	r.URL.Path = "/r/" + at(attempt).String() + "/v1/chat/completions"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	z.ServeHTTP(w, r)
	return w
}

func TestAGatewayThatWakesUpLateAnswersFromTheRecord(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		z, gate := s.zombie(time.Minute), newSamplingGate()
		z.gate = gate.gate
		z.replies = [][]int32{say("other bits", tokenizer.End)} // of an engine that does not repeat itself
		var late *httptest.ResponseRecorder
		var all sync.WaitGroup
		all.Go(func() { late = z.asked(t, 1, ask("a"), requestName, "e1") })
		<-gate.arrived // here it stops, and the forwarder turns to another
		want := s.ask(t, 1, ask("a"), requestName, "e1", retry, "1")
		s.ask(t, 1, ask("b"))
		gate.pass <- struct{}{}
		all.Wait()
		require.Equal(t, http.StatusOK, late.Code, late.Body)
		require.Equal(t, want.body, late.Body.String())
		require.Len(t, s.calls(t, 1), 2)
		require.Equal(t, gateway.Stats{Sampled: 1, Unrecorded: 1, Rejoined: 1}, z.Stats())
	})
}

func TestTwoGatewaysThatSampleTheSameRecordOneCall(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		z, gate := s.zombie(time.Minute), newSamplingGate()
		z.gate = gate.gate
		var late *httptest.ResponseRecorder
		var all sync.WaitGroup
		all.Go(func() { late = z.asked(t, 1, ask("a"), requestName, "e1") })
		<-gate.arrived
		want := s.ask(t, 1, ask("a"), requestName, "e1", retry, "1")
		gate.pass <- struct{}{}
		all.Wait()
		require.Equal(t, want.body, late.Body.String(), "no clock is in a reply")
		require.Len(t, s.calls(t, 1), 1)
	})
}

func TestALateGatewayRecordsWhatNobodyElseDid(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		z, gate := s.zombie(time.Minute), newSamplingGate()
		z.gate = gate.gate
		var late *httptest.ResponseRecorder
		var all sync.WaitGroup
		all.Go(func() { late = z.asked(t, 1, ask("a")) })
		<-gate.arrived
		s.ask(t, 1, ask("b"))
		gate.pass <- struct{}{}
		all.Wait()
		require.Equal(t, http.StatusOK, late.Code, late.Body)
		calls := s.calls(t, 1)
		require.Len(t, calls, 2)
		require.JSONEq(t, string(calls[1].Response), late.Body.String(), "it came second")
		require.Len(t, z.requests(), 1, "and was not sampled again for it")
	})
}

func TestTwoGatewaysCountOccurrencesTogether(t *testing.T) {
	t.Parallel()
	// At the same second both make equal replies for the first occurrence.
	for _, late := range []time.Duration{0, time.Minute} {
		onJournals(t, func(t *testing.T, s *testEnv) {
			z := s.zombie(late)
			z.asked(t, 1, ask("hello"))
			first := s.ask(t, 1, ask("a"), requestName, "e1")
			second := z.asked(t, 1, ask("a"), requestName, "e2")
			require.Equal(t, http.StatusOK, second.Code, second.Body)
			require.NotEqual(t, first.body, second.Body.String())
			calls := s.calls(t, 1)
			require.Len(t, calls, 3)
			require.Equal(t, []int{0, 1}, []int{calls[1].Occurrence, calls[2].Occurrence})
		})
	}
}

func TestARetryThatMemoryDoesNotKnowIsLookedUp(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		z := s.zombie(time.Minute)
		z.asked(t, 1, ask("hello"))
		want := s.ask(t, 1, ask("a"), requestName, "e1")
		require.Equal(t, want.body, z.asked(t, 1, ask("a"), requestName, "e1", retry, "1").Body.String())
		require.Len(t, z.requests(), 1, "it sampled nothing but its own call")
	})
}

func TestALateGatewayContinuesWhatAnotherRecorded(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		z := s.zombie(time.Minute)
		first := z.asked(t, 1, request(message("user", "go")))
		// The other's reply is spelled by its byte, which no encoding would do.
		odd := say(int32(32+'7'), tokenizer.End)
		s.replies = [][]int32{odd}
		turns := []string{message("user", "go"), message("assistant", content(t, first.Body.String())), message("user", "on")}
		second := s.ask(t, 1, request(turns...))
		turns = append(turns, message("assistant", content(t, second.body)), message("user", "end"))
		third := z.asked(t, 1, request(turns...))
		require.Equal(t, http.StatusOK, third.Code, third.Body)
		calls := s.calls(t, 1)
		require.Len(t, calls, 3)
		bridge, err := dialog.Compact().Bridge([]dialog.Message{{Role: dialog.User, Content: "end"}}, nil)
		require.NoError(t, err)
		require.Equal(t, slices.Concat(calls[1].Prompt, odd, bridge), calls[2].Prompt)
		require.Len(t, record.Merge(record.Calls(calls)), 1)
	})
}

func TestTwoGatewaysReplayACallOnce(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		want := []string{s.ask(t, 1, ask("a")).body, s.ask(t, 1, ask("b")).body}
		s.next(t, 2)
		z := s.zombie(time.Minute)
		require.Equal(t, want[0], z.asked(t, 2, ask("a"), requestName, "e1").Body.String())
		require.Equal(t, want[1], s.ask(t, 2, ask("b"), requestName, "e2").body)
		require.Equal(t, want[1], z.asked(t, 2, ask("b"), requestName, "e2").Body.String())
		require.Equal(t, []int{1, 1}, s.from(t, 2))
		require.Empty(t, z.requests())
		require.Len(t, s.requests(), 2)
	})
}

func TestALateGatewayOfAnEarlierAttemptRecordsNothing(t *testing.T) {
	t.Parallel()
	onJournals(t, func(t *testing.T, s *testEnv) {
		z, gate := s.zombie(time.Minute), newSamplingGate()
		z.gate = gate.gate
		var late *httptest.ResponseRecorder
		var all sync.WaitGroup
		all.Go(func() { late = z.asked(t, 1, ask("a")) })
		<-gate.arrived
		s.next(t, 2)
		want := s.ask(t, 2, ask("a"))
		gate.pass <- struct{}{}
		all.Wait()
		require.Equal(t, http.StatusConflict, late.Code, late.Body)
		require.Empty(t, s.calls(t, 1))
		require.Equal(t, want.body, s.ask(t, 2, ask("a"), retry, "1").body)
		require.Equal(t, int64(1), z.Stats().Unrecorded)
	})
}
