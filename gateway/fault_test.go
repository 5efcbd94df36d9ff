package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

func TestACallThatCannotBeRecordedIsNotAnswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail     func(m *memory, err func() error)
		recorded int
	}{
		"refused":                {func(m *memory, err func() error) { m.before = err }, 0},
		"committed, answer lost": {func(m *memory, err func() error) { m.after = err }, 1},
		"conflict": {func(m *memory, err func() error) {
			m.before = func() error { return fmt.Errorf("%w: %w", err(), record.ErrConflict) }
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, nil)
			c.fail(s.memory, func() error { return errors.New("disk on fire") })
			a := s.chat(t, ask("a"))
			require.Equal(t, http.StatusServiceUnavailable, a.status)
			require.Equal(t, "infrastructure", a.header.Get("X-Fulgurite-Fault"))
			require.NotContains(t, a.body, "choices")
			require.NotContains(t, a.body, "disk on fire", "that is no business of the agent")
			require.Len(t, s.recorded(t), c.recorded)

			s.memory.mu.Lock()
			s.before, s.after = nil, nil
			s.memory.mu.Unlock()
			require.Equal(t, http.StatusOK, s.chat(t, ask("b")).status)
			a = s.chat(t, ask("a"), "X-Fulgurite-Retry", "1")
			require.Equal(t, http.StatusOK, a.status)
			calls := s.recorded(t)
			require.Len(t, calls, 2)
			require.JSONEq(t, string(calls[1-c.recorded].Response), a.body)
			require.Equal(t, 0, calls[1-c.recorded].Occurrence)
		})
	}
}

func TestAFaultOfTheSamplerIsOursAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.gate = func(context.Context) error { return errors.New("no such weights") }
	a := s.chat(t, ask("a"))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "infrastructure", a.header.Get("X-Fulgurite-Fault"))
	require.Empty(t, s.recorded(t))
	s.script.mu.Lock()
	s.gate = nil
	s.script.mu.Unlock()
	require.Equal(t, http.StatusOK, s.chat(t, ask("a"), "X-Fulgurite-Retry", "1").status)
	asked := s.requests()
	require.Equal(t, asked[0].Seed, asked[1].Seed, "the occurrence was given back")
}

// A request that fails after an equal one succeeded must not get the other's
// reply when it is asked again.
func TestARetryDoesNotGetTheReplyOfAnEarlierEqualRequest(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	first := s.chat(t, ask("a"))
	s.script.mu.Lock()
	s.gate = func(context.Context) error { return errors.New("gone") }
	s.script.mu.Unlock()
	require.Equal(t, http.StatusServiceUnavailable, s.chat(t, ask("a")).status)
	s.script.mu.Lock()
	s.gate = nil
	s.script.mu.Unlock()
	again := s.chat(t, ask("a"), "X-Fulgurite-Retry", "1")
	require.NotEqual(t, first.body, again.body)
	require.Len(t, s.recorded(t), 2)
}

func TestARetryAfterALostRecordIsSampledAfresh(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say("1", tokenizer.End), append([]int32{poison}, say(tokenizer.End)...), say("2", tokenizer.End)}
	require.Contains(t, s.chat(t, ask("a")).body, `"content":"1"`)
	require.Equal(t, http.StatusServiceUnavailable, s.chat(t, ask("a")).status)
	require.Contains(t, s.chat(t, ask("a"), "X-Fulgurite-Retry", "1").body, `"content":"2"`)
	require.Len(t, s.recorded(t), 2)
}

func TestACallInFlightSurvivesAnotherThatCouldNotBeRecorded(t *testing.T) {
	t.Parallel()
	s, gate := newTestEnv(t, nil), newSamplingGate()
	s.gate = gate.gate
	s.replies = [][]int32{say("1", tokenizer.End), append([]int32{poison}, say(tokenizer.End)...)}
	g := gateway.New(s.config)
	var first sync.WaitGroup
	reply := httptest.NewRecorder()
	first.Go(func() { g.ServeHTTP(reply, chatRequest(t.Context(), ask("a"))) })
	<-gate.arrived

	s.script.mu.Lock()
	s.gate = nil
	s.script.mu.Unlock()
	lost, another := httptest.NewRecorder(), httptest.NewRecorder()
	g.ServeHTTP(lost, chatRequest(t.Context(), ask("b")))
	require.Equal(t, http.StatusServiceUnavailable, lost.Code)
	g.ServeHTTP(another, chatRequest(t.Context(), ask("a")))
	require.Equal(t, http.StatusOK, another.Code)
	gate.pass <- struct{}{}
	first.Wait()
	require.Equal(t, http.StatusOK, reply.Code, reply.Body)
	require.Len(t, s.recorded(t), 2)
	require.NotEqual(t, s.requests()[0].Seed, s.requests()[2].Seed)
}

type panicking struct{}

func (panicking) Sample(context.Context, model.VersionID, model.DecodeRequest) (model.Completion, string, error) {
	panic("sampler bug")
}

func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.MaxCalls = 1 })
	good := s.config.Sampler
	sampler := &swap{panicking{}}
	s.config.Sampler = sampler
	g := gateway.New(s.config)
	failed := httptest.NewRecorder()
	g.ServeHTTP(failed, chatRequest(t.Context(), ask("a")))
	require.Equal(t, http.StatusServiceUnavailable, failed.Code)
	require.NotEmpty(t, failed.Header().Get("X-Fulgurite-Fault"))
	require.NotContains(t, failed.Body.String(), "sampler bug")
	sampler.Sampler = good
	after := httptest.NewRecorder()
	r := chatRequest(t.Context(), ask("a"))
	r.Header.Set("X-Fulgurite-Retry", "1")
	g.ServeHTTP(after, r)
	require.Equal(t, http.StatusOK, after.Code, after.Body)
}

type swap struct{ model.Sampler }

func TestASamplerThatBreaksItsContractIsAtFault(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.config.Sampler = withoutLogprobs{}
	s.restart(t)
	require.Equal(t, http.StatusServiceUnavailable, s.chat(t, ask("a")).status)
	require.Empty(t, s.recorded(t))
}

type withoutLogprobs struct{}

func (withoutLogprobs) Sample(context.Context, model.VersionID, model.DecodeRequest) (model.Completion, string, error) {
	return model.Completion{Tokens: []int32{tokenizer.End}}, "w", nil
}
