package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// converse puts conversations on record, each with one call: chatcmpl-N for conversation N.
// All calls answer the same request.
func converse(t *testing.T, s *store.Store, all ...record.Conversation) {
	t.Helper()
	for _, c := range all {
		require.NoError(t, store.InsertConversation(t.Context(), s, c))
		address, err := s.BeginAttempt(t.Context(), c.Address().RolloutID, "", record.Terms{Policy: c.Policy, Version: c.Version}, "")
		require.NoError(t, err)
		require.Equal(t, c.Address(), address)
		require.NoError(t, s.AppendCall(t.Context(), &record.Exchange{
			Call: record.Call{
				Address: address, ID: fmt.Sprintf("chatcmpl-%d", c.Number), Parent: -1, Policy: c.Policy, Version: c.Version, Key: "same request",
				Prompt: []int32{1, 2, 3}, Completion: []int32{int32(c.Number)}, Logprobs: []float32{-0.5}, Finish: "stop",
			},
			Request: []byte(`{"messages":[{"role":"user","content":"planted question"}]}`), Response: []byte(`{"text":"planted reply"}`),
		}))
	}
}

// servedAt returns a conversation of the run demo; its last call was number minutes after
// noon.
func servedAt(number int, change ...func(*record.Conversation)) record.Conversation {
	c := record.Conversation{Run: "demo", Number: number, Policy: "main", Version: 3, Begun: noon, Last: noon.Add(time.Duration(number) * time.Minute)}
	for _, f := range change {
		f(&c)
	}
	return c
}

func text(s string) *string { return &s }

// judge returns feedback of conversation 0 of the run demo with all fields.
func judge(id string) record.Feedback {
	return record.Feedback{
		Run: "demo", ID: id, Conversation: 0, CallID: "chatcmpl-0", Reward: number(-0.5), Thumb: record.ThumbDown, CorrectedText: text("better\x00"),
		PreferredOver: "chatcmpl-1", Labels: []string{"rude", `"quoted"`}, User: "u1", Comment: "too long", Key: "app", At: noon,
	}
}

func put(t *testing.T, s *store.Store, all ...record.Feedback) {
	t.Helper()
	for _, f := range all {
		_, created, err := s.PutFeedback(t.Context(), f)
		require.NoError(t, err)
		require.True(t, created, f.ID)
	}
}

func TestFeedbackIsKeptOnceByItsID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		stored, created, err := s.PutFeedback(t.Context(), judge("a"))
		require.NoError(t, err)
		require.True(t, created)
		want := judge("a")
		want.CorrectedText = text("better\uFFFD")
		require.Empty(t, cmp.Diff(want, stored))

		late := judge("a")
		late.At = noon.Add(time.Hour)
		stored, created, err = s.PutFeedback(t.Context(), late)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, noon, stored.At, "the first one counts")

		for name, change := range map[string]func(*record.Feedback){
			"conversation": func(f *record.Feedback) { f.Conversation = 1 }, "reply": func(f *record.Feedback) { f.CallID = "" },
			"reward": func(f *record.Feedback) { f.Reward = number(0) }, "no reward": func(f *record.Feedback) { f.Reward = nil },
			"thumb": func(f *record.Feedback) { f.Thumb = "" }, "correction": func(f *record.Feedback) { f.CorrectedText = nil },
			"empty correction": func(f *record.Feedback) { f.CorrectedText = text("") }, "pair": func(f *record.Feedback) { f.PreferredOver = "" },
			"labels": func(f *record.Feedback) { f.Labels = nil }, "user": func(f *record.Feedback) { f.User = "u2" },
			"comment": func(f *record.Feedback) { f.Comment = "" }, "key": func(f *record.Feedback) { f.Key = "" },
		} {
			other := judge("a")
			change(&other)
			_, _, err := s.PutFeedback(t.Context(), other)
			require.ErrorIs(t, err, record.ErrConflict, name)
		}
		bare := record.Feedback{Run: "demo", ID: "b", Conversation: 0, Thumb: record.ThumbUp, At: noon.Add(time.Second)}
		put(t, s, bare)
		all, err := s.Feedback(t.Context(), "demo", 0)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff([]record.Feedback{want, bare}, all))
		_, _, err = s.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: "c", Conversation: 7, Thumb: record.ThumbUp})
		require.ErrorIs(t, err, record.ErrNotFound)
		require.NotErrorIs(t, err, record.ErrForgotten)
	})
}

func TestEqualFeedbackOfManyAtOnceIsOne(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		var wait sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for range 8 {
			wait.Go(func() {
				_, created, err := s.PutFeedback(t.Context(), judge("a"))
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				if created {
					made++
				}
			})
		}
		wait.Wait()
		require.Equal(t, 1, made)
	})
}

func TestAUserCantPreferBothOfTwoReplies(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		pair := func(id, user string, better, worse int) record.Feedback {
			return record.Feedback{Run: "demo", ID: id, Conversation: better, CallID: fmt.Sprintf("chatcmpl-%d", better), PreferredOver: fmt.Sprintf("chatcmpl-%d", worse), User: user, At: noon}
		}
		put(t, s, pair("a", "u1", 0, 1))
		_, _, err := s.PutFeedback(t.Context(), pair("b", "u1", 1, 0))
		require.ErrorIs(t, err, record.ErrContradiction)
		require.ErrorContains(t, err, "by a the other reply is better")
		put(t, s, pair("c", "u1", 0, 1), pair("d", "u2", 1, 0), pair("e", "", 1, 0), pair("f", "", 0, 1))

		// At once: one of the two is refused.
		for i := range 8 {
			user := fmt.Sprintf("at once %d", i)
			errs := make([]error, 2)
			var wait sync.WaitGroup
			for n := range errs {
				wait.Go(func() { _, _, errs[n] = s.PutFeedback(t.Context(), pair(fmt.Sprintf("%s/%d", user, n), user, n, 1-n)) })
			}
			wait.Wait()
			require.True(t, (errs[0] == nil) != (errs[1] == nil), "%v", errs)
		}
	})
}

func TestAFloodOfFeedbackEnds(t *testing.T) {
	t.Parallel()
	s := open(t, "sqlite://"+t.TempDir()+"/store.db")
	endedRun(t, s, "demo")
	converse(t, s, servedAt(0))
	require.NoError(t, store.FillFeedback(t.Context(), s, "demo", 0, record.MaxFeedback-1))
	put(t, s, record.Feedback{Run: "demo", ID: "last", Thumb: record.ThumbUp})
	_, _, err := s.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: "too much", Thumb: record.ThumbUp})
	require.ErrorIs(t, err, record.ErrTooMuchFeedback)
	_, created, err := s.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: "last", Thumb: record.ThumbUp})
	require.NoError(t, err, "what is there is not refused")
	require.False(t, created)
}

func TestFeedbackIsUsedByOneSegment(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1), servedAt(2))
		at := func(id string, conversation, second int) record.Feedback {
			return record.Feedback{Run: "demo", ID: id, Conversation: conversation, Thumb: record.ThumbUp, At: noon.Add(time.Duration(second) * time.Second)}
		}
		put(t, s, at("d", 1, 0), at("b", 0, 2), at("c", 0, 1), at("a", 0, 1), at("e", 2, 0))
		future := noon.AddDate(1, 0, 0)
		unused := func(before time.Time, limit int) (ids []string) {
			all, err := s.UnusedFeedback(t.Context(), "demo", []record.FeedbackKind{record.FeedbackThumb, record.FeedbackValue}, before, future, limit)
			require.NoError(t, err)
			for _, f := range all {
				require.Zero(t, f.Step)
				ids = append(ids, f.ID)
			}
			return ids
		}
		require.Equal(t, []string{"a", "c", "b", "d"}, unused(noon.Add(2*time.Minute), 10), "conversation 2 has not ended before")
		require.Equal(t, []string{"c", "b"}, unused(noon.Add(2*time.Minute), 2), "the newest")
		future = noon.Add(time.Minute)
		require.Contains(t, unused(noon, 10), "e", "the last call of conversation 2 is after that")
		future = noon.AddDate(1, 0, 0)

		first := record.Segment{Run: "demo", Policy: "main", Step: 1, Objective: "reward", Feedback: []string{"d", "a"}, Conversations: []int{0, 1}, LeftOut: map[string]int{"no tokens": 2}, At: noon}
		stored, created, err := s.PutSegment(t.Context(), first)
		require.NoError(t, err)
		require.True(t, created)
		require.Empty(t, cmp.Diff(first, stored))
		other := first
		other.Feedback = []string{"b"}
		stored, created, err = s.PutSegment(t.Context(), other)
		require.NoError(t, err)
		require.False(t, created)
		require.Empty(t, cmp.Diff(first, stored), "the first segment of a step counts")
		require.Equal(t, []string{"c", "b", "e"}, unused(noon.Add(time.Hour), 10))

		for _, c := range []struct {
			ids  []string
			want error
		}{{[]string{"b", "d"}, record.ErrConflict}, {[]string{"b", "gone"}, record.ErrNotFound}} {
			second := record.Segment{Run: "demo", Policy: "main", Step: 2, Feedback: c.ids}
			_, _, err := s.PutSegment(t.Context(), second)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, []string{"c", "b", "e"}, unused(noon.Add(time.Hour), 10), "nothing is used then")
			_, err = s.Segment(t.Context(), "demo", "main", 2)
			require.ErrorIs(t, err, record.ErrNotFound)
		}
		_, _, err = s.PutSegment(t.Context(), record.Segment{Run: "demo", Policy: "main", Step: 2, Feedback: []string{"b", "b"}})
		require.ErrorContains(t, err, "twice")
		_, _, err = s.PutSegment(t.Context(), record.Segment{Run: "demo", Policy: "main", Step: 2})
		require.ErrorContains(t, err, "some feedback")
		second := record.Segment{Run: "demo", Policy: "main", Step: 2, Feedback: []string{"b"}, At: noon}
		_, created, err = s.PutSegment(t.Context(), second)
		require.NoError(t, err)
		require.True(t, created)
		all, err := s.Segments(t.Context(), "demo", "main")
		require.NoError(t, err)
		require.Empty(t, cmp.Diff([]record.Segment{first, second}, all))
		for number, want := range map[int][]int{0: {1, 2}, 9: nil} {
			steps, err := s.FeedbackSteps(t.Context(), "demo", number)
			require.NoError(t, err)
			require.Equal(t, want, steps)
		}

		// Feedback that was used is the same feedback when it is sent again.
		again, created, err := s.PutFeedback(t.Context(), at("b", 0, 2))
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, 2, again.Step)
	})
}

func TestConversationsAreListedByWhatIsSaidOfThem(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0, func(c *record.Conversation) { c.User, c.Name, c.Key = "abc", "support", "app" }), servedAt(1, func(c *record.Conversation) { c.Version = 4 }),
			servedAt(2, func(c *record.Conversation) {
				c.User, c.Policy, c.Pinned, c.Experiment, c.Candidate, c.Redacted = "abd", "writer", true, 5, true, true
			}))
		put(t, s, judge("a"), record.Feedback{Run: "demo", ID: "b", Conversation: 0, Labels: []string{"late"}}, record.Feedback{Run: "demo", ID: "c", Conversation: 2, Labels: []string{`rude "later"`}})
		_, _, err := s.PutSegment(t.Context(), record.Segment{Run: "demo", Policy: "main", Step: 1, Feedback: []string{"a"}})
		require.NoError(t, err)
		list := func(q record.ConversationQuery) (numbers []int) {
			q.Run = "demo"
			all, err := s.Conversations(t.Context(), q)
			require.NoError(t, err)
			for _, c := range all {
				numbers = append(numbers, c.Number)
			}
			return numbers
		}
		version := 4
		require.Equal(t, []int{2, 1, 0}, list(record.ConversationQuery{}))
		require.Equal(t, []int{2, 1}, list(record.ConversationQuery{Limit: 2}))
		require.Equal(t, []int{0}, list(record.ConversationQuery{Before: 1}))
		require.Equal(t, []int{1}, list(record.ConversationQuery{Version: &version}))
		require.Equal(t, []int{2}, list(record.ConversationQuery{Policy: "writer"}))
		require.Equal(t, []int{2, 0}, list(record.ConversationQuery{User: "ab"}))
		require.Equal(t, []int{0}, list(record.ConversationQuery{User: "abc"}))
		require.Equal(t, []int{2, 0}, list(record.ConversationQuery{WithFeedback: true}))
		require.Equal(t, []int{0}, list(record.ConversationQuery{Label: "rude"}), "a whole label, not the beginning of one")
		require.Equal(t, []int{0}, list(record.ConversationQuery{Label: `"quoted"`}))
		require.Equal(t, []int{2}, list(record.ConversationQuery{Label: `rude "later"`}))
		require.Empty(t, list(record.ConversationQuery{Label: "Rude"}))
		require.Empty(t, list(record.ConversationQuery{Label: "later"}))

		all, err := s.Conversations(t.Context(), record.ConversationQuery{Run: "demo"})
		require.NoError(t, err)
		want := servedAt(2, func(c *record.Conversation) {
			c.User, c.Policy, c.Pinned, c.Experiment, c.Candidate, c.Redacted, c.Calls = "abd", "writer", true, 5, true, true, 1
		})
		require.Empty(t, cmp.Diff(record.ConversationSummary{Conversation: want, Feedback: 1, Unused: 1}, all[0]))
		require.Equal(t, [2]int{2, 1}, [2]int{all[2].Feedback, all[2].Unused})
		one, err := s.Conversation(t.Context(), "demo", 2)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, one))
		named, err := s.ConversationsNamed(t.Context(), "demo", "app", "support")
		require.NoError(t, err)
		require.Len(t, named, 1)
		named, err = s.ConversationsNamed(t.Context(), "demo", "other app", "support")
		require.NoError(t, err)
		require.Empty(t, named)
	})
}

func TestAReplyIsFoundByItsID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		next := record.Exchange{
			Call: record.Call{
				Address: record.ConversationAddress("demo", 1), Seq: 1, ID: "chatcmpl-next", Parent: 0, Policy: "main", Version: 3, Key: "another request",
				Prompt: []int32{1, 2, 3, 1, 9}, Completion: []int32{7, 8}, Logprobs: []float32{-1, -2}, Finish: "stop",
			}, Request: []byte(`{}`), Response: []byte(`{}`),
		}
		require.NoError(t, s.AppendCall(t.Context(), &next))
		of, found, err := s.ServedReply(t.Context(), "chatcmpl-next")
		require.NoError(t, err)
		require.Equal(t, 1, of.Number)
		require.Empty(t, cmp.Diff(next.Call, found, cmpopts.IgnoreFields(record.Call{}, "Logprobs", "Recorded", "Started", "Duration")))
		_, _, err = s.ServedReply(t.Context(), "chatcmpl-7")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestAUsersHashIsThatOfTheStore(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		a, b := open(t, url), open(t, url)
		hashes := make([]string, 8)
		var wait sync.WaitGroup
		for i := range hashes {
			wait.Go(func() {
				var err error
				hashes[i], err = []*store.Store{a, b}[i%2].HashUser(t.Context(), "ann@example.org")
				assert.NoError(t, err)
			})
		}
		wait.Wait()
		for _, h := range hashes {
			require.Equal(t, hashes[0], h)
		}
		require.Len(t, hashes[0], 64)
		other, err := a.HashUser(t.Context(), "bob@example.org")
		require.NoError(t, err)
		require.NotEqual(t, hashes[0], other)
		none, err := a.HashUser(t.Context(), "")
		require.NoError(t, err)
		require.Empty(t, none)
		elsewhere, err := open(t, "sqlite://"+t.TempDir()+"/other.db").HashUser(t.Context(), "ann@example.org")
		require.NoError(t, err)
		require.NotEqual(t, hashes[0], elsewhere, "nobody can compute it without the store")
	})
}

func TestAServingKeyIsShownOnceAndCanBeRevoked(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		keys := store.ServingKeys{Store: s}
		app := record.ServingKey{Name: "app", Scopes: []string{record.ScopeServe, record.ScopeFeedback}, PerMinute: 60, Created: noon}
		secret, err := s.CreateServingKey(t.Context(), app)
		require.NoError(t, err)
		found, ok, err := keys.Key(t.Context(), secret)
		require.NoError(t, err)
		require.True(t, ok)
		require.Empty(t, cmp.Diff(app, found))
		var stored string
		require.NoError(t, tables(t, url).QueryRowContext(t.Context(), `SELECT name || hash || scopes FROM serving_keys`).Scan(&stored))
		require.NotContains(t, stored, strings.TrimPrefix(secret, "fulgurite-"), "the key itself is not on record")

		last := "a"
		if strings.HasSuffix(secret, last) {
			last = "b"
		}
		for _, forged := range []string{"", "app", "fulgurite-", strings.ToUpper(secret), secret + "a", secret[:len(secret)-1] + last} {
			_, ok, err := keys.Key(t.Context(), forged)
			require.NoError(t, err)
			require.False(t, ok, forged)
		}
		_, err = s.CreateServingKey(t.Context(), app)
		require.ErrorIs(t, err, record.ErrConflict)
		require.ErrorIs(t, s.RevokeServingKey(t.Context(), "nobody"), record.ErrNotFound)
		require.NoError(t, s.RevokeServingKey(t.Context(), "app"))
		found, ok, err = keys.Key(t.Context(), secret)
		require.NoError(t, err)
		require.True(t, ok)
		require.False(t, found.Revoked.IsZero())
		require.NoError(t, s.RevokeServingKey(t.Context(), "app"))
		all, err := s.ServingKeys(t.Context())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff([]record.ServingKey{found}, all), "revoking it again changes nothing")
		_, err = s.CreateServingKey(t.Context(), app)
		require.ErrorIs(t, err, record.ErrConflict, "conversations are recorded under the name")
	})
}

func TestFeedbackOfARemovedRunIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		r := endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		_, _, err := s.BeginForgetting(context.WithoutCancel(t.Context()), r, record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "me"})
		require.NoError(t, err)
		_, _, err = s.PutFeedback(t.Context(), judge("a"))
		require.ErrorIs(t, err, record.ErrForgotten)
		_, _, err = s.PutSegment(t.Context(), record.Segment{Run: "demo", Policy: "main", Step: 1, Feedback: []string{"a"}})
		require.ErrorIs(t, err, record.ErrForgotten)
	})
}

func TestARemovedConversationTakesNothingMore(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		put(t, s, judge("a"), record.Feedback{Run: "demo", ID: "b", Conversation: 1, Thumb: record.ThumbUp})
		require.NoError(t, s.RemoveConversation(t.Context(), "demo", 0))
		require.NoError(t, s.RemoveConversation(t.Context(), "demo", 0), "again")
		_, _, err := s.PutFeedback(t.Context(), judge("c"))
		require.ErrorIs(t, err, record.ErrForgotten)
		_, err = s.Conversation(t.Context(), "demo", 0)
		require.ErrorIs(t, err, record.ErrNotFound)
		require.ErrorIs(t, err, record.ErrForgotten)
		late := record.Exchange{
			Call:    record.Call{Address: record.ConversationAddress("demo", 0), Seq: 1, ID: "chatcmpl-late", Parent: -1, Policy: "main", Key: "late", Completion: []int32{1}, Logprobs: []float32{-1}},
			Request: []byte(`{}`), Response: []byte(`{}`),
		}
		require.Error(t, s.AppendCall(t.Context(), &late), "a gateway that knew it")
		rows, err := s.RowsOfRun(t.Context(), "demo")
		require.NoError(t, err)
		require.Empty(t, cmp.Diff([]record.RowCount{
			{Table: "exchanges", Rows: 1}, {Table: "calls", Rows: 1}, {Table: "feedback", Rows: 1}, {Table: "conversations", Rows: 1}, {Table: "attempts", Rows: 2}, {Table: "rollouts", Rows: 2},
		}, rows), "the attempt stays, without texts and tokens")
	})
}
