package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// refused lists what calls of the attempt were refused with, and how often.
func (s *testEnv) refused(t *testing.T) map[string]int {
	t.Helper()
	all, err := s.Refusals(t.Context(), address)
	require.NoError(t, err)
	counts := map[string]int{}
	for _, r := range all {
		require.NotEmpty(t, r.Message)
		counts[r.Code] = r.Count
	}
	return counts
}

func TestRefusedCallsAreOnRecord(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, func(a *record.Attempt) { a.Terms.MaxCalls = 1 })
	require.Equal(t, http.StatusOK, s.chat(t, ask("a")).status)
	require.Empty(t, s.refused(t))
	for range 3 {
		require.Equal(t, http.StatusBadRequest, s.chat(t, ask("b")).status)
	}
	require.Equal(t, http.StatusBadRequest, s.post(t, s.base()+"/n/writer/v1/messages", `{`).status)
	require.Equal(t, http.StatusBadRequest, s.post(t, s.base()+"/v1/responses", `{"input":"x","background":true}`).status)
	require.Equal(t, http.StatusBadRequest, s.chat(t, `{"stream":true,"messages":[{"role":"user","content":"c"}]}`).status)
	require.Equal(t, map[string]int{"call_limit": 4, "invalid_json": 1, "invalid_value": 1}, s.refused(t))
	all, err := s.Refusals(t.Context(), address)
	require.NoError(t, err)
	require.Equal(t, "the attempt has made all of its 1 call", all[0].Message)
}

func TestWhatIsNoRefusalOfACallIsNotCounted(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.post(t, s.base()+"/v1/chat/completions", ask("a"), "Authorization", "Bearer wrong")
	s.gate = func(context.Context) error { return fmt.Errorf("no such weights") }
	require.Equal(t, http.StatusServiceUnavailable, s.chat(t, ask("a")).status)
	s.Seal(address, record.OutcomeCompleted)
	s.restart(t)
	require.Equal(t, http.StatusConflict, s.chat(t, ask("a")).status)
	require.Empty(t, s.refused(t))
}

func TestAStreamThatIsRefusedLateIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.Keepalive = time.Millisecond })
	alive := make(chan struct{})
	s.gate = func(context.Context) error {
		<-alive
		return fmt.Errorf("%w: 70 of 64 positions", model.ErrPromptTooLong)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base()+"/v1/chat/completions", chatRequest(t.Context(), `{"stream":true,"messages":[{"role":"user","content":"c"}]}`).Body)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(r) // returns with the first keepalive
	require.NoError(t, err)
	defer response.Body.Close()
	close(alive)
	_, err = response.Body.Read(make([]byte, 1<<20))
	for err == nil {
		_, err = response.Body.Read(make([]byte, 1<<20))
	}
	require.Equal(t, map[string]int{"context_length_exceeded": 1}, s.refused(t))
}

// Nothing else depends on the record of refusals, so a store that is away must not
// keep an agent from its error.
func TestARefusalThatCannotBeRecordedIsAnswered(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	var asked atomic.Int64
	answered := make(chan struct{})
	s.refuse = func(ctx context.Context) error {
		if asked.Add(1) == 1 {
			return fmt.Errorf("disk on fire")
		}
		<-answered // for as long as the client has no answer
		return ctx.Err()
	}
	requireRefusal(t, s.chat(t, `{}`), http.StatusBadRequest, "invalid_value", "messages")
	requireRefusal(t, s.chat(t, `{}`), http.StatusBadRequest, "invalid_value", "messages")
	close(answered)
	require.EqualValues(t, 2, asked.Load())
}
