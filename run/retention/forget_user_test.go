package retention_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/store"
)

// database returns the path of the store's file.
func (r records) database() string {
	return filepath.Join(filepath.Dir(r.blobs.Directory()), "store.db")
}

// converses puts a conversation of a user with one call on record.
func (r records) converses(run string, number int, user string) {
	r.t.Helper()
	hash, err := r.store.HashUser(r.t.Context(), user)
	require.NoError(r.t, err)
	rows, err := sql.Open("sqlite", r.database()+"?_pragma=busy_timeout(10000)")
	require.NoError(r.t, err)
	_, err = rows.ExecContext(r.t.Context(), `INSERT INTO conversations (run, number, name, client, person, policy, version, pinned, experiment, candidate, redacted, begun, last)
VALUES ($1, $2, $3, '', $4, 'main', 0, 0, 0, 0, 0, 1, 1)`, run, number, fmt.Sprintf("planted name of %s %d", user, number), hash)
	require.NoError(r.t, err)
	require.NoError(r.t, rows.Close())
	address, err := r.store.BeginAttempt(r.t.Context(), record.ConversationAddress(run, number).RolloutID, "", record.Terms{Policy: "main"}, "")
	require.NoError(r.t, err)
	require.NoError(r.t, r.store.AppendCall(r.t.Context(), &record.Exchange{
		Call:    record.Call{Address: address, ID: fmt.Sprintf("chatcmpl-%d", number), Parent: -1, Policy: "main", Key: "k", Prompt: []int32{1}, Completion: []int32{2, 3}, Logprobs: []float32{-1, -2}},
		Request: fmt.Appendf(nil, `{"said":"planted question of %s"}`, user), Response: []byte(`{}`),
	}))
	_, err = r.store.PutShadowReply(r.t.Context(), record.ShadowReply{
		Run: run, Policy: "main", Candidate: 1, Conversation: number, CallID: fmt.Sprintf("chatcmpl-%d", number), Reply: "planted shadow of " + user, Finish: "stop",
	})
	require.NoError(r.t, err)
}

// judges gives a conversation feedback of a user.
func (r records) judges(run, id string, number int, user string) {
	r.t.Helper()
	hash, err := r.store.HashUser(r.t.Context(), user)
	require.NoError(r.t, err)
	_, _, err = r.store.PutFeedback(r.t.Context(), record.Feedback{Run: run, ID: id, Conversation: number, Comment: "planted comment of " + user, User: hash})
	require.NoError(r.t, err)
}

// learns makes step 1 of a run that of a segment with some feedback.
func (r records) learns(run string, conversations []int, feedback ...string) {
	r.t.Helper()
	_, _, err := r.store.PutSegment(r.t.Context(), record.Segment{Run: run, Policy: model.DefaultPolicy, Step: 1, Feedback: feedback, Conversations: conversations})
	require.NoError(r.t, err)
}

func (r records) forgets(f *retention.Forgetter, user, in string, dryRun bool) (retention.UserReport, error) {
	r.t.Helper()
	hash, err := r.store.HashUser(r.t.Context(), user)
	require.NoError(r.t, err)
	return f.ForgetUser(r.t.Context(), hash, in, "me", "asked to", dryRun)
}

// inFile reports whether the store's file has a text.
func (r records) inFile(text string) bool {
	r.t.Helper()
	require.NoError(r.t, r.store.Scrub(r.t.Context(), false))
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(r.database() + suffix)
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(r.t, err)
		}
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}

func TestAForgottenUserLeavesOnlyWhatVersionsHaveLearned(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.trained("demo", "")
	r.trained("from", "demo@1")
	r.converses("demo", 0, "ann")
	r.converses("demo", 1, "bob")
	r.converses("demo", 2, "ann")
	r.judges("demo", "a", 0, "ann")
	r.judges("demo", "b", 1, "ann")
	r.judges("demo", "c", 1, "bob")
	r.judges("demo", "d", 0, "bob")
	r.learns("demo", []int{0, 1}, "a", "c")
	batches, err := r.store.Batches(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	files := r.files()

	f := r.forgetter()
	want := record.ForgottenUserReport{
		Run: "demo", Conversations: []int{0, 2}, Calls: 2, Tokens: 4, Feedback: 2, Steps: []int{1}, Versions: []string{"demo@1 to demo@2", "from@0 to from@2"},
	}
	dry, err := r.forgets(f, "ann", "", true)
	require.NoError(t, err)
	require.Equal(t, []record.ForgottenUserReport{want}, dry.Runs)
	require.Equal(t, files, r.files(), "a dry run changes nothing")
	require.True(t, r.inFile("planted question of ann"))

	done, err := r.forgets(f, "ann", "", false)
	require.NoError(t, err)
	require.Equal(t, []record.ForgottenUserReport{want}, done.Runs)
	for _, text := range []string{"planted question of ann", "planted comment of ann", "planted name of ann", "planted shadow of ann"} {
		require.False(t, r.inFile(text), text)
	}
	for _, text := range []string{"planted question of bob", "planted comment of bob", "planted shadow of bob"} {
		require.True(t, r.inFile(text), text)
	}
	left, err := r.store.Conversations(t.Context(), record.ConversationQuery{Run: "demo"})
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Equal(t, 1, left[0].Feedback, "what bob said of his own conversation stays")
	for _, b := range batches {
		_, err := r.blobs.Get(t.Context(), b.Digest)
		if b.Step == 1 {
			require.ErrorIs(t, err, record.ErrNotFound)
		} else {
			require.NoError(t, err)
		}
	}
	stones, err := r.store.Forgotten(t.Context(), "demo")
	require.NoError(t, err)
	require.Len(t, stones, 1)
	require.False(t, stones[0].Ended.IsZero())
	text, err := json.Marshal(stones[0])
	require.NoError(t, err)
	require.NotContains(t, string(text), "ann", "the tombstone does not name the user")
	require.ErrorIs(t, retention.Refusal(t.Context(), r.store, "demo", 1, 0, false), record.ErrForgotten)
	require.NoError(t, retention.Refusal(t.Context(), r.store, "demo", 2, 0, false))

	_, err = r.forgets(f, "ann", "", false)
	require.ErrorIs(t, err, record.ErrNotFound)
	r.converses("demo", 3, "ann") // she comes again
	again, err := r.forgets(f, "ann", "demo", false)
	require.NoError(t, err)
	require.Equal(t, []int{3}, again.Runs[0].Conversations)
	require.Empty(t, again.Runs[0].Steps)
	_, err = r.forgets(f, "bob", "from", false)
	require.ErrorIs(t, err, record.ErrNotFound)
}

func TestARunThatServesForgetsUsersUnlessItHasLearnedFromThem(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("serving", nil, 0)
	r.converses("serving", 0, "ann")
	r.converses("serving", 1, "bob")
	r.judges("serving", "b", 1, "bob")
	r.learns("serving", []int{1}, "b")
	report, err := r.forgets(r.forgetter(), "ann", "", false)
	require.NoError(t, err)
	require.Equal(t, []int{0}, report.Runs[0].Conversations)
	_, err = r.forgets(r.forgetter(), "bob", "", false)
	require.ErrorIs(t, err, retention.ErrRefused)
	require.ErrorContains(t, err, "serving")
	require.True(t, r.inFile("planted question of bob"))
}

// dyingStore is a store whose removal of conversations fails from a given one on.
type dyingStore struct {
	*store.Store
	left int
}

var errDied = errors.New("died")

func (d *dyingStore) RemoveConversation(ctx context.Context, run string, number int) error {
	if d.left--; d.left < 0 {
		return errDied
	}
	return d.Store.RemoveConversation(ctx, run, number)
}

func TestAForgottenUserWhoseRemovalWasKilledIsForgottenByTheNext(t *testing.T) {
	t.Parallel()
	for left := range 2 {
		r := open(t)
		r.trained("demo", "")
		r.converses("demo", 0, "ann")
		r.converses("demo", 1, "ann")
		r.converses("demo", 2, "bob")
		r.judges("demo", "a", 0, "ann")
		r.judges("demo", "b", 2, "bob")
		r.learns("demo", []int{0}, "a")
		f := r.forgetter()
		f.Store = &dyingStore{r.store, left}
		_, err := r.forgets(f, "ann", "", false)
		require.ErrorIs(t, err, errDied)
		_, _, err = r.store.PutSegment(t.Context(), record.Segment{Run: "demo", Policy: model.DefaultPolicy, Step: 2, Feedback: []string{"b"}})
		require.ErrorIs(t, err, record.ErrForgotten, "no segment is made meanwhile")
		report, err := r.forgets(r.forgetter(), "ann", "", false)
		require.NoError(t, err)
		require.Equal(t, []int{0, 1}, report.Runs[0].Conversations)
		require.Equal(t, []int{1}, report.Runs[0].Steps)
		require.Equal(t, 1, report.Runs[0].Feedback)
		require.False(t, r.inFile("planted question of ann"))
		stones, err := r.store.Forgotten(t.Context(), "demo")
		require.NoError(t, err)
		require.Len(t, stones, 1)
		require.WithinDuration(t, time.Now(), stones[0].Ended, time.Minute)
		_, _, err = r.store.PutSegment(t.Context(), record.Segment{Run: "demo", Policy: model.DefaultPolicy, Step: 2, Feedback: []string{"b"}})
		require.NoError(t, err)
	}
}
