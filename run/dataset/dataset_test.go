package dataset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// asked is a request in which only instructions and tools could tell which agent made it.
const asked = `{"messages":[{"role":"user","content":"four"}]}`

// schema is the form of a reply that has to be a JSON object.
const schema = `{"codec":"compact","schema":{"type":"object"}}`

// demo returns a recorded run of one step: an attempt with three calls. The second call
// continues the first, was restricted by a form, and has a token without an alternative.
// The third call belongs to an agent that only a span names, and was not trained.
func demo(t *testing.T) dataset.Source {
	t.Helper()
	ctx := t.Context()
	db, err := store.Open(ctx, filepath.Join(t.TempDir(), "store.db"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(ctx))
	blobs, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	_, _, err = db.CreateRun(ctx, record.Run{Name: "demo", WorkflowID: "demo", ExecutionID: "x", Spec: json.RawMessage(`{"credit":{"rewards":{"final":2,"style":1},"format_penalty":0.125}}`), Status: record.Running, Created: time.Now()})
	require.NoError(t, err)

	rollout := record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Task: 4}
	address, err := db.BeginAttempt(ctx, rollout, "four", record.Terms{Policy: "main"}, "hash")
	require.NoError(t, err)
	first := record.Exchange{Call: record.Call{
		Address: address, Seq: 0, ID: "chatcmpl-a", Parent: -1, Policy: "main", Weights: "w", Key: "k0", Temperature: 1,
		Prompt: []int32{1, 2}, Completion: []int32{3}, Logprobs: []float32{-0.5}, Finish: "stop",
	}, Request: json.RawMessage(asked), Response: json.RawMessage(`{"id":"chatcmpl-a"}`)}
	second := record.Exchange{Call: record.Call{
		Address: address, Seq: 1, ID: "msg_b", API: "messages", Agent: "writer", Parent: 0, Policy: "main", Weights: "w", Key: "k1", Temperature: 1,
		Prompt: []int32{1, 2, 3, 4}, Completion: []int32{5, 6}, Logprobs: []float32{-1, -2}, Untrained: []bool{true, false}, Finish: "length",
		Form:       json.RawMessage(schema),
		ParseError: "cut off",
	}, Request: json.RawMessage(`{"b":"<"}`), Response: json.RawMessage(`{}`)}
	require.NoError(t, db.AppendCall(ctx, &first))
	third := record.Exchange{Call: record.Call{
		Address: address, Seq: 2, ID: "chatcmpl-c", Parent: -1, Policy: "main", Weights: "w", Key: "k2", Temperature: 1,
		Prompt: []int32{7}, Completion: []int32{8, 9}, Logprobs: []float32{-3, -4}, Finish: "stop", Form: json.RawMessage(`{"codec":"compact","stop":["x"]}`),
	}, Request: json.RawMessage(`{"messages":[]}`), Response: json.RawMessage(`{}`)}
	require.NoError(t, db.AppendCall(ctx, &second))
	require.NoError(t, db.AppendCall(ctx, &third))
	require.NoError(t, db.PutSpans(ctx, address, []record.Span{{Trace: "t", ID: "s", Name: "chat", Agent: "critic", CallID: "chatcmpl-c"}}))
	for _, r := range []record.Reward{{Name: "style", Value: 0.5}, {Name: "brevity", Value: 3}, {Name: "useful", Value: 1, CallID: "msg_b"}} {
		r.Address, r.Source = address, "agent"
		require.NoError(t, db.PutReward(ctx, r))
	}
	reward := 0.25
	require.NoError(t, db.SealAttempt(ctx, record.Attempt{Address: address, Outcome: record.OutcomeCompleted, Reward: &reward}))

	b := model.Batch{
		Format: model.BatchFormat, Policy: "main", Step: 1, VocabSize: 10,
		Trajectories: []model.BatchTrajectory{{Attempt: address.String(), Group: 0, Reward: 0.25, Advantage: 2}},
		Rows: []model.BatchRow{{
			Row:     model.Row{Tokens: []int32{1, 2, 3, 4, 5, 6}, Temperature: 1},
			Sampled: []bool{false, false, true, false, false, true}, Logprobs: []float32{0, 0, -0.5, 0, 0, -2},
			Advantages: []float32{0, 0, 1, 0, 0, 2}, Calls: []int32{-1, -1, 0, -1, -1, 1},
			Forms: []model.BatchForm{{Start: 4, Length: 2, Form: model.Form{Codec: "compact", Schema: json.RawMessage(`{"type":"object"}`)}}},
		}},
	}
	b.Count()
	file, err := hf.EncodeBatch(b)
	require.NoError(t, err)
	digest, err := blobs.Put(ctx, file)
	require.NoError(t, err)
	_, _, err = db.PutBatch(ctx, record.Batch{Run: "demo", Policy: "main", Step: 1, Digest: digest, Sequences: 1, Tokens: 6, Trained: 2})
	require.NoError(t, err)
	return dataset.Source{Store: db, Blobs: blobs, Run: "demo", Policy: "main"}
}

// rewards are those of the attempt. Twice its final reward after the penalty for the reply
// that could not be parsed, and its style, are shaped.
func rewards() ([]dataset.NamedReward, *float64) {
	shaped := 2*(0.25-0.125) + 0.5
	return []dataset.NamedReward{{Name: "brevity", Value: 3}, {Name: "final", Value: 0.25}, {Name: "style", Value: 0.5}}, &shaped
}

func wantTransitions() []dataset.Transition {
	all := []dataset.Transition{
		{
			Run: "demo", Step: 1, Attempt: "demo/train-1/4/0/1", Call: 0, ID: "chatcmpl-a", API: "chat", Policy: "main", Weights: "w", Temperature: 1,
			AgentSource: "instructions",
			PromptIDs:   []int32{1, 2}, CompletionIDs: []int32{3}, Logprobs: []float32{-0.5}, LossMask: []int32{1}, Forced: []int32{0}, Advantages: []float32{1},
			Reward: 0.25, Advantage: 1, Finish: "stop", Request: asked, Response: `{"id":"chatcmpl-a"}`,
		},
		{
			Run: "demo", Step: 1, Attempt: "demo/train-1/4/0/1", Call: 1, ID: "msg_b", API: "messages", Policy: "main", Weights: "w", Temperature: 1,
			Agent: "writer", AgentSource: "path", Masked: true, Form: schema,
			PromptIDs: []int32{1, 2, 3, 4}, CompletionIDs: []int32{5, 6}, Logprobs: []float32{-1, -2}, LossMask: []int32{0, 1}, Forced: []int32{1, 0}, Advantages: []float32{0, 2},
			Reward: 0.25, CallRewards: []dataset.NamedReward{{Name: "useful", Value: 1}}, Advantage: 2, Finish: "length", ParseError: "cut off", Request: `{"b":"<"}`, Response: `{}`,
		},
		{
			Run: "demo", Step: 1, Attempt: "demo/train-1/4/0/1", Call: 2, ID: "chatcmpl-c", API: "chat", Policy: "main", Weights: "w", Temperature: 1,
			Agent: "critic", AgentSource: "span",
			PromptIDs: []int32{7}, CompletionIDs: []int32{8, 9}, Logprobs: []float32{-3, -4}, LossMask: []int32{0, 0}, Forced: []int32{0, 0}, Advantages: []float32{0, 0},
			Reward: 0.25, Last: true, Finish: "stop", Request: `{"messages":[]}`, Response: `{}`,
		},
	}
	for i := range all {
		all[i].Outcome = "completed"
		all[i].Rewards, all[i].ShapedReward = rewards()
	}
	return all
}

func TestEachFormatHoldsEachCallWithWhatItWasTrainedWith(t *testing.T) {
	t.Parallel()
	source := demo(t)
	for _, extension := range []string{".jsonl", ".parquet"} {
		path := filepath.Join(t.TempDir(), "out"+extension)
		n, err := dataset.WriteFile(t.Context(), path, source.Transitions)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		got := readBack[dataset.Transition](t, path)
		require.Regexp(t, "^agent-[0-9a-f]{8}$", got[0].Agent)
		got[0].Agent = ""
		require.Empty(t, cmp.Diff(wantTransitions(), got, cmpopts.EquateEmpty()), extension)
	}
}

func TestSequencesAreTheRowsOfTheBatch(t *testing.T) {
	t.Parallel()
	named, shaped := rewards()
	source := demo(t)
	for _, extension := range []string{".jsonl", ".parquet"} {
		path := filepath.Join(t.TempDir(), "out"+extension)
		n, err := dataset.WriteFile(t.Context(), path, source.Sequences)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		got := readBack[dataset.Sequence](t, path)
		require.Regexp(t, "^sha256:", got[0].Batch)
		got[0].Batch = ""
		require.Empty(t, cmp.Diff([]dataset.Sequence{{
			Run: "demo", Step: 1, Attempt: "demo/train-1/4/0/1", Temperature: 1,
			InputIDs: []int32{1, 2, 3, 4, 5, 6}, LossMask: []int32{0, 0, 1, 0, 0, 1}, Logprobs: []float32{0, 0, -0.5, 0, 0, -2},
			Advantages: []float32{0, 0, 1, 0, 0, 2}, Calls: []int32{-1, -1, 0, -1, 1, 1}, Outcome: "completed", Reward: 0.25, Rewards: named, ShapedReward: shaped, Advantage: 2,
			Forced: []int32{0, 0, 0, 0, 1, 0}, Masked: []int32{0, 0, 0, 0, 1, 1}, Forms: []dataset.SequenceForm{{Start: 4, Length: 2, Form: schema}},
		}}, got, cmpopts.EquateEmpty()), extension)
	}
}

func readBack[T any](t *testing.T, path string) []T {
	t.Helper()
	if filepath.Ext(path) == ".parquet" {
		rows, err := parquet.ReadFile[T](path)
		require.NoError(t, err)
		return rows
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var rows []T
	for line := range bytes.Lines(data) {
		var row T
		require.NoError(t, json.Unmarshal(line, &row))
		rows = append(rows, row)
	}
	return rows
}

func TestAFileAppearsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	source, directory := demo(t), t.TempDir()
	path := filepath.Join(directory, "out.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("before"), 0o600))
	broken := errors.New("broken")
	_, err := dataset.WriteFile(t.Context(), path, func(ctx context.Context, yield func(dataset.Transition) error) error {
		return errors.Join(source.Transitions(ctx, yield), broken)
	})
	require.ErrorIs(t, err, broken)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "before", string(data))
	_, err = dataset.WriteFile(t.Context(), filepath.Join(directory, "out.csv"), source.Sequences)
	require.ErrorIs(t, err, dataset.ErrFormat)
	source.Run = "other"
	_, err = dataset.WriteFile(t.Context(), path, source.Sequences)
	require.ErrorIs(t, err, record.ErrNotFound)
	left, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing of the failures is left")
}
