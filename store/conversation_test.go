package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

var servedTerms = record.Terms{Policy: "main", Version: 7, Codec: "compact", MaxTokens: 1024, ClientSampling: true}

func talk(name string) record.Conversation {
	return record.Conversation{Run: "demo", Name: name, Key: "web", User: "a1", Policy: "main", Version: 7}
}

func beginTalk(t *testing.T, s *store.Store, c record.Conversation) record.Conversation {
	t.Helper()
	out, created, err := s.BeginConversation(t.Context(), c, servedTerms)
	require.NoError(t, err)
	require.True(t, created)
	return out
}

// served returns a call of a conversation.
func served(c record.Conversation, seq int, digest string) record.Exchange {
	x := call(c.Address(), seq, []int32{1, int32(seq)}, []int32{2})
	x.ID = fmt.Sprintf("chatcmpl-%d-%d", c.Number, seq)
	x.Served = &record.ServedCall{Client: c.Key, Digest: digest}
	return x
}

func createDemo(t *testing.T, s *store.Store) {
	t.Helper()
	_, _, err := s.CreateRun(t.Context(), record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "x", SpecDigest: "d"})
	require.NoError(t, err)
}

func TestAConversationIsAnAttemptWithoutAKey(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		for n := range 3 {
			c := beginTalk(t, s, talk(""))
			require.Equal(t, n, c.Number)
			a, err := s.Attempt(t.Context(), c.Address())
			require.NoError(t, err)
			require.Empty(t, a.KeyHash)
			require.Equal(t, servedTerms, a.Terms)
			read, err := s.Conversation(t.Context(), "demo", n)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(c, read))
		}
		_, err := s.Conversation(t.Context(), "demo", 3)
		require.ErrorIs(t, err, record.ErrNotFound)
		_, _, err = s.BeginConversation(t.Context(), record.Conversation{Run: "nobody"}, servedTerms)
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestANameIsOneConversationOfAUserWhateverIsPromoted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		first := beginTalk(t, s, talk("support"))
		later := talk("support")
		later.Version = 8
		got, created, err := s.BeginConversation(t.Context(), later, servedTerms)
		require.NoError(t, err)
		require.False(t, created)
		require.Empty(t, cmp.Diff(first, got))
		got, err = s.NamedConversation(t.Context(), later)
		require.NoError(t, err)
		require.Equal(t, first.Number, got.Number)

		for i, change := range []func(*record.Conversation){
			func(c *record.Conversation) { c.Key = "app" }, func(c *record.Conversation) { c.User = "b2" },
			func(c *record.Conversation) { c.Policy = "writer" }, func(c *record.Conversation) { c.Pinned = true },
			func(c *record.Conversation) { c.Pinned, c.Version = true, 8 }, func(c *record.Conversation) { c.Name = "other" },
		} {
			c := talk("support")
			change(&c)
			_, err := s.NamedConversation(t.Context(), c)
			require.ErrorIs(t, err, record.ErrNotFound)
			require.Equal(t, i+1, beginTalk(t, s, c).Number)
		}
		_, err = s.NamedConversation(t.Context(), talk(""))
		require.ErrorIs(t, err, record.ErrNotFound, "no name is no name")
	})
}

func TestProcessesThatBeginANamedConversationAtOnceBeginOne(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		stores := []*store.Store{open(t, url), open(t, url)}
		createDemo(t, stores[0])
		const all = 16
		var group sync.WaitGroup
		named, free := make([]int, all), make([]int, all)
		begun, errs := make([]bool, all), make([]error, 2*all)
		for i := range all {
			group.Go(func() {
				c := talk("one")
				c.Version = i
				var got record.Conversation
				got, begun[i], errs[i] = stores[i%2].BeginConversation(t.Context(), c, servedTerms)
				named[i] = got.Number
			})
			group.Go(func() {
				var got record.Conversation
				got, _, errs[all+i] = stores[i%2].BeginConversation(t.Context(), talk(""), servedTerms)
				free[i] = got.Number
			})
		}
		group.Wait()
		require.NoError(t, errors.Join(errs...))
		require.Len(t, slices.DeleteFunc(begun, func(b bool) bool { return !b }), 1)
		numbers := append(free, named[0])
		slices.Sort(numbers)
		require.Len(t, slices.Compact(numbers), all+1)
		for _, n := range named {
			require.Equal(t, named[0], n)
		}
	})
}

func TestACallOfAConversationTellsWhereItStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		opening := talk("")
		opening.Opening = "d0"
		c := beginTalk(t, s, opening)
		twin := beginTalk(t, s, talk(""))
		x := served(c, 0, "d1")
		require.NoError(t, s.AppendCall(t.Context(), &x))
		require.NoError(t, s.AppendCall(t.Context(), &x), "twice is once")
		for _, digest := range []string{"d0", "d1"} {
			got, err := s.ConversationOfReply(t.Context(), "demo", "web", digest)
			require.NoError(t, err)
			require.Equal(t, c.Number, got.Number)
			require.Equal(t, 1, got.Calls)
			require.True(t, got.Last.After(got.Begun))
			require.False(t, got.Redacted)
		}
		_, err := s.ConversationOfReply(t.Context(), "demo", "app", "d1")
		require.ErrorIs(t, err, record.ErrNotFound, "of another key")
		_, err = s.ConversationOfReply(t.Context(), "other", "web", "d1")
		require.ErrorIs(t, err, record.ErrNotFound, "of another run")

		y := served(twin, 0, "d1")
		y.Served.Redacted = true
		require.NoError(t, s.AppendCall(t.Context(), &y))
		got, err := s.ConversationOfReply(t.Context(), "demo", "web", "d1")
		require.NoError(t, err)
		require.Equal(t, twin.Number, got.Number, "the last one")
		require.True(t, got.Redacted)

		of, found, err := s.ServedReply(t.Context(), x.ID)
		require.NoError(t, err)
		require.Equal(t, c.Number, of.Number)
		require.Equal(t, x.Completion, found.Completion)
		_, _, err = s.ServedReply(t.Context(), "chatcmpl-none")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestAReplyIsReadWithThePromptThatItContinues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		c := beginTalk(t, s, talk(""))
		first, aside, second := served(c, 0, ""), served(c, 1, ""), served(c, 2, "")
		second.Prompt, second.Parent = []int32{1, 0, 2, 9}, 0
		third := served(c, 3, "")
		third.Prompt, third.Parent = []int32{1, 0, 2, 9, 2, 8}, 2
		for _, x := range []*record.Exchange{&first, &aside, &second, &third} {
			require.NoError(t, s.AppendCall(t.Context(), x))
		}
		all, err := s.Calls(t.Context(), c.Address())
		require.NoError(t, err)
		for _, want := range all {
			of, got, err := s.ServedReply(t.Context(), want.ID)
			require.NoError(t, err)
			require.Equal(t, c.Number, of.Number)
			require.Empty(t, cmp.Diff(want, got))
			of, err = s.ConversationWithReply(t.Context(), want.ID)
			require.NoError(t, err)
			require.Equal(t, len(all), of.Calls)
		}
		_, err = s.ConversationWithReply(t.Context(), "chatcmpl-none")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestACallThatIsNotAppendedLeavesNoTrace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		c := beginTalk(t, s, talk(""))
		x, other := served(c, 0, "d1"), served(c, 0, "d2")
		other.Key = "another"
		require.NoError(t, s.AppendCall(t.Context(), &x))
		require.ErrorIs(t, s.AppendCall(t.Context(), &other), record.ErrConflict)
		_, err := s.ConversationOfReply(t.Context(), "demo", "web", "d2")
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestConversationsGoOnAfterTheEndOfTheirRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		c := beginTalk(t, s, talk(""))
		trained := begin(t, s, rollout(1, 1))
		require.NoError(t, s.FinishRun(t.Context(), "demo", record.Completed, nil))
		x := served(c, 0, "d")
		require.NoError(t, s.AppendCall(t.Context(), &x))
		beginTalk(t, s, talk("later"))
		y := call(trained, 0, nil, []int32{1})
		require.ErrorIs(t, s.AppendCall(t.Context(), &y), record.ErrFenced)
	})
}

func TestARemovedConversationIsGoneAndItsNumberIsNotGivenAgain(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		createDemo(t, s)
		old, young := beginTalk(t, s, talk("old")), beginTalk(t, s, talk("young"))
		x := served(old, 0, "d1")
		require.NoError(t, s.AppendCall(t.Context(), &x))
		last, err := s.Conversation(t.Context(), "demo", old.Number)
		require.NoError(t, err)
		y := served(young, 0, "d2")
		require.NoError(t, s.AppendCall(t.Context(), &y))
		_, err = tables(t, url).ExecContext(t.Context(), `INSERT INTO feedback (run, id, conversation, call_id, thumb, preferred, labels, person, comment, client, at, step)
VALUES ('demo', 'f', 0, '', 'up', '', '', '', '', '', 0, 0)`)
		require.NoError(t, err)

		removed, err := s.RemoveConversations(t.Context(), "demo", last.Last.Add(1), nil)
		require.NoError(t, err)
		require.Equal(t, 1, removed)
		for _, table := range []string{"calls", "exchanges", "feedback", "conversation_replies", "conversations"} {
			var left int
			column := map[string]string{"calls": "task", "exchanges": "task", "feedback": "conversation"}[table]
			if column == "" {
				column = "number"
			}
			require.NoError(t, tables(t, url).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+table+` WHERE `+column+` = 0`).Scan(&left))
			require.Zero(t, left, table)
		}
		late := served(old, 1, "d3")
		require.ErrorIs(t, s.AppendCall(t.Context(), &late), record.ErrFenced)
		require.Equal(t, 2, beginTalk(t, s, talk("old")).Number)
		_, _, err = s.ServedReply(t.Context(), y.ID)
		require.NoError(t, err, "the other one stays")

		require.NoError(t, s.RemoveConversation(t.Context(), "demo", young.Number))
		require.NoError(t, s.RemoveConversation(t.Context(), "demo", young.Number), "again")
		require.NoError(t, s.RemoveConversation(t.Context(), "demo", 99), "none")
		_, err = s.Conversation(t.Context(), "demo", young.Number)
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestOnlyAConversationWithoutCallsAndFeedbackIsDiscarded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		opening := talk("x")
		opening.Opening = "d0"
		empty, used, judged := beginTalk(t, s, opening), beginTalk(t, s, talk("y")), beginTalk(t, s, talk("z"))
		x := served(used, 0, "d1")
		require.NoError(t, s.AppendCall(t.Context(), &x))
		_, _, err := s.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: "f", Conversation: judged.Number, Comment: "empty"})
		require.NoError(t, err)

		for _, kept := range []record.Conversation{used, judged} {
			removed, err := s.DiscardConversation(t.Context(), "demo", kept.Number)
			require.NoError(t, err)
			require.False(t, removed)
		}
		removed, err := s.DiscardConversation(t.Context(), "demo", empty.Number)
		require.NoError(t, err)
		require.True(t, removed)
		removed, err = s.DiscardConversation(t.Context(), "demo", empty.Number)
		require.NoError(t, err)
		require.True(t, removed, "a second time is no error")
		_, err = s.Conversation(t.Context(), "demo", empty.Number)
		require.ErrorIs(t, err, record.ErrForgotten)
		_, err = s.ConversationOfReply(t.Context(), "demo", "web", "d0")
		require.ErrorIs(t, err, record.ErrNotFound)
		late := served(empty, 0, "")
		require.ErrorIs(t, s.AppendCall(t.Context(), &late), record.ErrFenced)

		abandoned := beginTalk(t, s, talk("x"))
		require.Equal(t, 3, abandoned.Number, "no number is given twice")
		n, err := s.RemoveEmptyConversations(t.Context(), "demo", abandoned.Begun)
		require.NoError(t, err)
		require.Zero(t, n, "it has just begun")
		n, err = s.RemoveEmptyConversations(t.Context(), "demo", abandoned.Begun.Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		for _, c := range []record.Conversation{used, judged} {
			_, err = s.Conversation(t.Context(), "demo", c.Number)
			require.NoError(t, err)
		}
	})
}

func TestAForgottenRunAcceptsNoConversation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		beginTalk(t, s, talk("one"))
		require.NoError(t, s.PutTrafficSetting(t.Context(), "demo", "all", "ann", ""))
		require.NoError(t, s.FinishRun(t.Context(), "demo", record.Completed, nil))
		r, err := s.Run(t.Context(), "demo")
		require.NoError(t, err)
		f := record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "ann"}
		_, _, err = s.BeginForgetting(t.Context(), r, f)
		require.NoError(t, err)
		_, _, err = s.BeginConversation(t.Context(), talk("one"), servedTerms)
		require.ErrorIs(t, err, record.ErrForgotten)
		require.ErrorIs(t, s.PutTrafficSetting(t.Context(), "demo", "none", "ann", ""), record.ErrForgotten)
		require.NoError(t, s.RemoveRows(t.Context(), "demo"))
		require.NoError(t, s.EndForgetting(t.Context(), f))
		_, _, err = s.BeginConversation(t.Context(), talk("one"), servedTerms)
		require.ErrorIs(t, err, record.ErrForgotten)
		_, err = s.Conversation(t.Context(), "demo", 0)
		require.ErrorIs(t, err, record.ErrNotFound)
	})
}

func TestTheLastTrafficSettingCounts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		createDemo(t, s)
		got, err := s.TrafficSetting(t.Context(), "demo")
		require.NoError(t, err)
		require.Empty(t, got)
		for _, setting := range []string{"all", "none", "with-consent"} {
			require.NoError(t, s.PutTrafficSetting(t.Context(), "demo", setting, "ann", "why"))
			got, err := s.TrafficSetting(t.Context(), "demo")
			require.NoError(t, err)
			require.Equal(t, setting, got)
		}
		require.ErrorIs(t, s.PutTrafficSetting(t.Context(), "other", "all", "ann", ""), record.ErrNotFound)
	})
}

func TestAUserHasOneHashInAStoreAndAnotherElsewhere(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		a, b := open(t, url), open(t, url)
		other := open(t, "sqlite://"+t.TempDir()+"/other.db")
		hash := func(s *store.Store, user string) string {
			h, err := s.HashUser(t.Context(), user)
			require.NoError(t, err)
			return h
		}
		require.Len(t, hash(a, "ann"), 64)
		require.Equal(t, hash(a, "ann"), hash(b, "ann"))
		require.NotEqual(t, hash(a, "ann"), hash(a, "bob"))
		require.NotEqual(t, hash(a, "ann"), hash(other, "ann"))
		require.Empty(t, hash(a, ""))
	})
}
