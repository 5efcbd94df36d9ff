package traffic_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/run/traffic"
	"github.com/fulgurite/fulgurite/store"
)

// recorded returns a store with one conversation of two calls, of which the second continues
// the first, and with feedback.
func recorded(t *testing.T) *store.Store {
	t.Helper()
	return recordedAt(t, filepath.Join(t.TempDir(), "store.db"))
}

func recordedAt(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "x"})
	require.NoError(t, err)
	rows, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = rows.ExecContext(t.Context(), `INSERT INTO conversations (run, number, name, client, person, policy, version, pinned, experiment, candidate, redacted, begun, last)
VALUES ('demo', 0, 'support', 'app', 'abc', 'main', 3, 0, 0, 0, 0, 1000000000, 2000000000)`)
	require.NoError(t, err)
	require.NoError(t, rows.Close())
	address, err := s.BeginAttempt(t.Context(), record.ConversationAddress("demo", 0).RolloutID, "", record.Terms{Policy: "main", Version: 3}, "")
	require.NoError(t, err)
	started := time.Unix(1, 0).UTC()
	for _, x := range []record.Exchange{
		{
			Call:    record.Call{Address: address, ID: "chatcmpl-a", Parent: -1, Policy: "main", Version: 3, Key: "a", Prompt: []int32{1}, Completion: []int32{2}, Logprobs: []float32{-0.5}, Finish: "stop", Temperature: 0.7, TopP: 0.9, Started: started},
			Request: json.RawMessage(`{"messages":[{"role":"user","content":"2+2?"}]}`), Response: json.RawMessage(`{"choices":[{"message":{"role":"assistant","content":"5"}}]}`),
		},
		{
			Call:    record.Call{Address: address, Seq: 1, ID: "chatcmpl-b", Parent: 0, Policy: "main", Version: 3, Key: "b", Prompt: []int32{1, 2, 3}, Completion: []int32{4}, Logprobs: []float32{-1}, Finish: "stop", Started: started},
			Request: json.RawMessage(`{"messages":[{"role":"user","content":"2+2?"},{"role":"assistant","content":"5"},{"role":"user","content":"really?"}]}`), Response: json.RawMessage(`{"choices":[{"message":{"role":"assistant","content":"4"}}]}`),
		},
	} {
		require.NoError(t, s.AppendCall(t.Context(), &x))
	}
	reward, corrected := -1.0, "4"
	_, _, err = s.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: "app/1", CallID: "chatcmpl-a", Reward: &reward, CorrectedText: &corrected, Labels: []string{"wrong"}, At: started})
	require.NoError(t, err)
	return s
}

func TestAConversationIsReadWithWhatWasSaidOfIt(t *testing.T) {
	t.Parallel()
	s := recorded(t)
	row, err := traffic.Source{Store: s}.Row(t.Context(), "demo", 0)
	require.NoError(t, err)
	reward, corrected := -1.0, "4"
	question, wrong := traffic.Message{Role: "user", Content: "2+2?"}, traffic.Message{Role: "assistant", Content: "5"}
	const second = "1970-01-01T00:00:01Z"
	want := traffic.Row{
		Run: "demo", Conversation: "demo/served-0/0/0/1", Name: "support", Key: "app", User: "abc", Policy: "main", Version: 3, Begun: second, Last: "1970-01-01T00:00:02Z",
		Replies: []traffic.Reply{
			{ID: "chatcmpl-a", Parent: -1, Begun: second, Messages: []traffic.Message{question}, Choices: []traffic.Message{wrong}, Finish: "stop", Temperature: 0.7, TopP: 0.9, Tokens: 1},
			{ID: "chatcmpl-b", Call: 1, Parent: 0, Begun: second, Messages: []traffic.Message{question, wrong, {Role: "user", Content: "really?"}}, Choices: []traffic.Message{{Role: "assistant", Content: "4"}}, Finish: "stop", Known: 2, Tokens: 1},
		},
		Feedback: []traffic.Judgment{{ID: "app/1", Reply: "chatcmpl-a", Reward: &reward, CorrectedText: &corrected, Labels: []string{"wrong"}, At: second}},
	}
	require.Empty(t, cmp.Diff(want, row))
	_, err = traffic.Source{Store: s}.Row(t.Context(), "demo", 1)
	require.ErrorIs(t, err, record.ErrNotFound)
}

// A removal ends the attempt, then takes bodies, then calls, and the conversation last.
func TestAConversationWhoseRemovalWasKilledIsLeftOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := recordedAt(t, path)
	rows, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	_, err = rows.ExecContext(t.Context(), `DELETE FROM exchanges`)
	require.NoError(t, err)
	_, err = traffic.Source{Store: s}.Row(t.Context(), "demo", 0)
	require.Error(t, err)
	require.NotErrorIs(t, err, record.ErrNotFound, "its bodies are lost, and nobody removed them")
	_, err = rows.ExecContext(t.Context(), `UPDATE attempts SET outcome = 'completed'`)
	require.NoError(t, err)
	_, err = traffic.Source{Store: s}.Row(t.Context(), "demo", 0)
	require.ErrorIs(t, err, record.ErrNotFound)
	require.ErrorIs(t, err, record.ErrForgotten)
}

func TestBothFormatsHoldTheSameConversations(t *testing.T) {
	t.Parallel()
	source := traffic.Source{Store: recorded(t), Tokens: true}
	var rows []traffic.Row
	read := func(ctx context.Context, yield func(traffic.Row) error) error {
		return source.Rows(ctx, record.ConversationQuery{Run: "demo"}, yield)
	}
	require.NoError(t, read(t.Context(), func(r traffic.Row) error { rows = append(rows, r); return nil }))
	require.Len(t, rows, 1)
	require.Equal(t, []int32{1, 2, 3}, rows[0].Replies[1].PromptIDs)
	for i := range rows[0].Replies {
		rows[0].Replies[i].Known, rows[0].Replies[i].Tokens = 0, 0 // they are for the command
	}
	want, err := json.Marshal(rows)
	require.NoError(t, err)

	dir := t.TempDir()
	n, err := dataset.WriteFile(t.Context(), filepath.Join(dir, "out.jsonl"), read)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	line, err := os.ReadFile(filepath.Join(dir, "out.jsonl"))
	require.NoError(t, err)
	require.JSONEq(t, string(want), "["+string(line)+"]")
	_, err = dataset.WriteFile(t.Context(), filepath.Join(dir, "out.parquet"), read)
	require.NoError(t, err)
	back, err := parquet.ReadFile[traffic.Row](filepath.Join(dir, "out.parquet"))
	require.NoError(t, err)
	got, err := json.Marshal(back)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}
