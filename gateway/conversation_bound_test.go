package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

const served = "/v1/chat/completions"

func requestOf(messages ...string) string {
	return `{"model":"demo","messages":[` + strings.Join(messages, ",") + `]}`
}

// talk has a dialog of so many turns, and returns its messages.
func (s traffic) talk(t *testing.T, turns int, headers ...string) []string {
	t.Helper()
	var said []string
	for turn := range turns {
		said = append(said, message("user", fmt.Sprint(turn)))
		said = append(said, message("assistant", content(t, s.say(t, said, headers...).body)))
	}
	return said
}

func TestANamedConversationTakesNoMoreCallsThanItsBound(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.versions.maxCalls = 3
	for turn := range 3 {
		s.say(t, []string{message("user", fmt.Sprint(turn))}, "X-Fulgurite-Conversation", "all")
	}
	address := "demo/served-0/0/0/1"
	for _, name := range []string{"all", address} {
		a := s.post(t, s.url+served, requestOf(message("user", "one more")), "X-Fulgurite-Conversation", name)
		requireRefusal(t, a, http.StatusConflict, "conversation_full", "X-Fulgurite-Conversation")
		require.Contains(t, a.body, "traffic.max_calls of run demo")
		require.Equal(t, "false", a.header.Get("X-Should-Retry"))
	}
	require.Len(t, s.requests(), 3, "nothing is sampled")
	s.restart(t)
	requireRefusal(t, s.post(t, s.url+served, requestOf(message("user", "one more")), "X-Fulgurite-Conversation", "all"), http.StatusConflict, "conversation_full", "X-Fulgurite-Conversation")
	a := s.say(t, []string{message("user", "2")}, "X-Fulgurite-Conversation", "all", "X-Stainless-Retry-Count", "1")
	require.Equal(t, http.StatusOK, a.status, "a reply on record answers a retry")
	s.say(t, []string{message("user", "one more")}, "X-Fulgurite-Conversation", "next")
	s.requireConversations(t, 3, 1)
}

func TestAFullConversationWithoutANameGoesOnAsAnother(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.versions.maxCalls = 2
	said := s.talk(t, 5)
	s.requireConversations(t, 2, 2, 1)
	_, calls := s.calls(t, 1)
	requireContinued(t, calls)
	sampled := len(s.requests())
	again := s.say(t, said[:9], "X-Stainless-Retry-Count", "1")
	require.Contains(t, said[9], content(t, again.body))
	require.Len(t, s.requests(), sampled, "the retry finds the reply in the conversation that went on")
	s.requireConversations(t, 2, 2, 1)
}

func TestAReplyOfAFullConversationIsNotContinuedByItsID(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.versions.maxCalls = 1
	first := s.post(t, s.url+"/v1/responses", `{"model":"demo","input":"a"}`)
	require.Equal(t, http.StatusOK, first.status, first.body)
	next := s.post(t, s.url+"/v1/responses", `{"model":"demo","input":"b","previous_response_id":"`+idOf(t, first)+`"}`)
	requireRefusal(t, next, http.StatusConflict, "conversation_full", "X-Fulgurite-Conversation")
	s.requireConversations(t, 1)
}

func TestMoreChoicesThanAConversationHasCallsAreRefused(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	s.versions.maxCalls = 2
	a := s.post(t, s.url+served, `{"model":"demo","n":3,"messages":[`+message("user", "a")+`]}`)
	requireRefusal(t, a, http.StatusConflict, "conversation_full", "n")
	require.Empty(t, s.requests())
	_, err := s.store.Conversation(t.Context(), "demo", 0)
	require.NotErrorIs(t, err, record.ErrForgotten, "none was begun")
	s.requireConversations(t)
}

func TestARefusedFirstRequestLeavesNoConversation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause  error
		status int
	}{
		"by the sampler": {fmt.Errorf("%w: 9 tokens", model.ErrPromptTooLong), http.StatusBadRequest},
		"by a fault":     {errors.New("no sampler is there"), http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTraffic(t)
			s.gate = func(context.Context) error { return c.cause }
			for _, stream := range []string{"", `"stream":true,`} {
				a := s.post(t, s.url+served, `{"model":"demo",`+stream+`"messages":[`+message("user", "a")+`]}`)
				require.Equal(t, c.status, a.status, a.body)
				require.Empty(t, a.header.Get("X-Fulgurite-Conversation"))
			}
			s.requireConversations(t)
			for range 2 {
				a := s.post(t, s.url+served, `{"model":"demo","messages":[`+message("user", "a")+`]}`, "X-Fulgurite-Conversation", "named")
				require.Equal(t, c.status, a.status, a.body)
			}
			named, err := s.store.Conversation(t.Context(), "demo", 2)
			require.NoError(t, err)
			require.Equal(t, "named", named.Name)
			s.gate = nil
			s.say(t, []string{message("user", "a")}, "X-Fulgurite-Conversation", "named")
			s.say(t, []string{message("user", "a")})
			for n := range 2 {
				_, err := s.store.Conversation(t.Context(), "demo", n)
				require.ErrorIs(t, err, record.ErrForgotten)
				_, calls := s.calls(t, 2+n)
				require.Len(t, calls, 1)
			}
		})
	}
}

func TestARefusedLaterRequestLeavesItsConversation(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	said := s.talk(t, 1)
	s.gate = func(context.Context) error { return errors.New("no sampler is there") }
	a := s.post(t, s.url+served, requestOf(append(said, message("user", "b"))...))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, "demo/served-0/0/0/1", a.header.Get("X-Fulgurite-Conversation"))
	s.gate = nil
	s.say(t, append(said, message("user", "b")))
	s.requireConversations(t, 2)
}

func TestAConversationThatAnotherRequestUsesOutlivesARefusedFirstOne(t *testing.T) {
	t.Parallel()
	s := newTraffic(t)
	refused, arrived := make(chan struct{}), make(chan struct{})
	var asked atomic.Int32
	s.gate = func(context.Context) error {
		if asked.Add(1) > 1 {
			return nil
		}
		close(arrived)
		<-refused
		return model.ErrPromptTooLong
	}
	done := make(chan answer)
	go func() {
		a, _ := s.try(t.Context(), http.MethodPost, s.url+served, requestOf(message("user", "long")), "X-Fulgurite-Conversation", "x")
		done <- a
	}()
	<-arrived
	s.say(t, []string{message("user", "short")}, "X-Fulgurite-Conversation", "x")
	close(refused)
	require.Equal(t, http.StatusBadRequest, (<-done).status)
	s.requireConversations(t, 1)
}

// undiscarded is a store whose conversations can't be removed.
type undiscarded struct{ gateway.Conversations }

func (undiscarded) DiscardConversation(context.Context, string, int) (bool, error) {
	return false, errors.New("disk full")
}

func TestARefusalIsAnsweredAlsoIfItsConversationCantBeRemoved(t *testing.T) {
	t.Parallel()
	s := newTraffic(t, func(c *gateway.Config) { c.Conversations = undiscarded{c.Conversations} })
	s.gate = func(context.Context) error { return model.ErrPromptTooLong }
	a := s.post(t, s.url+served, requestOf(message("user", "a")))
	requireRefusal(t, a, http.StatusBadRequest, "context_length_exceeded", "messages")
	s.gate = nil
	s.say(t, []string{message("user", "a")}, "X-Stainless-Retry-Count", "1")
	s.requireConversations(t, 1)
}
