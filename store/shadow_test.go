package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// shadowReply returns what candidate 7 of the run demo replied to the call of a conversation.
func shadowReply(conversation int, change ...func(*record.ShadowReply)) record.ShadowReply {
	r := record.ShadowReply{
		Run: "demo", Policy: "main", Candidate: 7, Conversation: conversation, CallID: fmt.Sprintf("chatcmpl-%d", conversation), Reply: "planted shadow",
		Tokens: 3, Finish: "length", Duration: 2 * time.Second, At: noon.Add(time.Duration(conversation) * time.Second),
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func putShadow(t *testing.T, s *store.Store, all ...record.ShadowReply) {
	t.Helper()
	for _, r := range all {
		created, err := s.PutShadowReply(t.Context(), r)
		require.NoError(t, err)
		require.True(t, created, r.CallID)
	}
}

func shadowOf(t *testing.T, s *store.Store, q record.ShadowQuery) []record.ShadowReply {
	t.Helper()
	q.Run, q.Policy = "demo", "main"
	all, err := s.ShadowReplies(t.Context(), q)
	require.NoError(t, err)
	return all
}

func TestACandidateRepliesToACallOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		converse(t, s, servedAt(0))
		require.Empty(t, shadowOf(t, s, record.ShadowQuery{}))
		first := shadowReply(0)
		putShadow(t, s, first)
		created, err := s.PutShadowReply(t.Context(), shadowReply(0, func(r *record.ShadowReply) { r.Reply = "another" }))
		require.NoError(t, err)
		require.False(t, created)
		requireEqual(t, []record.ShadowReply{first}, shadowOf(t, s, record.ShadowQuery{}))

		_, err = s.PutShadowReply(t.Context(), shadowReply(1))
		require.ErrorIs(t, err, record.ErrNotFound)
		require.NotErrorIs(t, err, record.ErrForgotten)
		_, err = s.PutShadowReply(t.Context(), shadowReply(0, func(r *record.ShadowReply) { r.CallID = "" }))
		require.ErrorContains(t, err, "call_id: missing")
	})
}

func TestShadowRepliesAreListedByCandidateAndConversation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		converse(t, s, servedAt(0), servedAt(1), servedAt(2))
		failed := shadowReply(2, func(r *record.ShadowReply) {
			r.Reply, r.Tokens, r.Finish, r.Error = "", 0, "", "the prompt is too long"
		})
		second := shadowReply(2, func(r *record.ShadowReply) { r.CallID = "chatcmpl-2b"; r.At = noon.Add(time.Hour) })
		older := shadowReply(0, func(r *record.ShadowReply) { r.Candidate = 5 })
		other := shadowReply(0, func(r *record.ShadowReply) { r.Policy, r.Candidate = "other", 9 })
		putShadow(t, s, shadowReply(0), older, failed, second, shadowReply(1), other)

		five, two := 5, 2
		requireEqual(t, []record.ShadowReply{failed, second, shadowReply(1), shadowReply(0)}, shadowOf(t, s, record.ShadowQuery{}))
		requireEqual(t, []record.ShadowReply{older}, shadowOf(t, s, record.ShadowQuery{Candidate: &five}))
		requireEqual(t, []record.ShadowReply{failed, second}, shadowOf(t, s, record.ShadowQuery{Limit: 1}))
		requireEqual(t, []record.ShadowReply{shadowReply(1)}, shadowOf(t, s, record.ShadowQuery{Limit: 1, Before: &two}))
		requireEqual(t, []record.ShadowReply{shadowReply(1), shadowReply(0)}, shadowOf(t, s, record.ShadowQuery{Before: &two}))
	})
}

func TestShadowRepliesGoWithTheirConversation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		converse(t, s, servedAt(0), servedAt(1))
		putShadow(t, s, shadowReply(0), shadowReply(1))
		require.NoError(t, s.RemoveConversation(t.Context(), "demo", 0))
		requireEqual(t, []record.ShadowReply{shadowReply(1)}, shadowOf(t, s, record.ShadowQuery{}))
		_, err := s.PutShadowReply(t.Context(), shadowReply(0))
		require.ErrorIs(t, err, record.ErrForgotten)

		n, err := s.RemoveConversations(t.Context(), "demo", noon.Add(time.Hour), nil)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Empty(t, shadowOf(t, s, record.ShadowQuery{}))
	})
}

func TestShadowRepliesGoWithTheBodiesOfTheirRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		converse(t, s, servedAt(0))
		before, err := s.BodyBytes(t.Context(), "demo")
		require.NoError(t, err)
		putShadow(t, s, shadowReply(0))
		after, err := s.BodyBytes(t.Context(), "demo")
		require.NoError(t, err)
		require.EqualValues(t, len("planted shadow"), after-before)
		require.NoError(t, s.RemoveBodies(t.Context(), "demo"))
		require.Empty(t, shadowOf(t, s, record.ShadowQuery{}))
	})
}
