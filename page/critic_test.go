package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
)

// criticAttempt is where the run of criticRun has its attempt.
const criticAttempt = "/runs/critic/train-1/0/0/1"

// criticRun records a run with a critic, which gave each token its own advantage, so that
// the trajectory has none. Its attempt has four calls, each by another version, and its
// tokens have every shade of every overlay. The last call repeats the messages of the
// call before.
func (r *recorded) criticRun() {
	r.t.Helper()
	ctx := r.t.Context()
	demo, err := r.store.Run(ctx, "demo")
	require.NoError(r.t, err)
	_, _, err = r.store.CreateRun(ctx, record.Run{Name: "critic", Spec: json.RawMessage(`{"grader":{"type":"exact"}}`), Splits: demo.Splits})
	require.NoError(r.t, err)
	a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: "critic", Kind: record.Train, Step: 1}, r.tasks[0].ID, record.Terms{Policy: model.DefaultPolicy, Codec: dialog.CompactName, Temperature: 1}, "c")
	require.NoError(r.t, err)
	batch := model.Batch{Policy: model.DefaultPolicy, Step: 1, VocabSize: dialog.Compact().VocabSize(), Trajectories: []model.BatchTrajectory{{Attempt: a.String()}}}
	scores := model.Scores{}
	surprises, differences := []float32{0.005, 0.05, 0.3, 0.7, 1.5, 3, 5}, []float32{0, 2e-5, 2e-4, 2e-3, 0.02, 0.2, 2}
	for seq, advantages := range [][]float32{
		{-0.9, -0.9, -0.9, -0.9, -0.9, -0.9, -0.9}, {-0.2, -0.5, -0.2, -0.5, -0.2, -0.5, -0.2}, {0.2, 0.5, 0.9, 0.2, 0.5, 0.9, 0.5}, {0, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3},
	} {
		call := r.call(a, seq, -1, nil)
		call.Agent, call.Key, call.Version, call.Request = "", fmt.Sprint("critic", seq), seq, r.spoken(min(seq, 2))
		call.Completion, call.Logprobs = dialog.Compact().Encode("1234567"), nil
		row := model.BatchRow{Row: model.Row{Tokens: append(slices.Clone(call.Prompt), call.Completion...), Temperature: 1}}
		row.Sampled, row.Logprobs, row.Advantages = make([]bool, len(row.Tokens)), make([]float32, len(row.Tokens)), make([]float32, len(row.Tokens))
		row.Calls = slices.Repeat([]int32{-1}, len(row.Tokens))
		for i, advantage := range advantages {
			at := len(call.Prompt) + i
			call.Logprobs, row.Calls[at] = append(call.Logprobs, -surprises[i]), int32(seq)
			if advantage != 0 {
				row.Sampled[at], row.Logprobs[at], row.Advantages[at] = true, -surprises[i], advantage
				scores.Logprobs, scores.Entropies = append(scores.Logprobs, differences[i]-surprises[i]), append(scores.Entropies, surprises[i])
			}
		}
		batch.Rows = append(batch.Rows, row)
		require.NoError(r.t, r.store.AppendCall(ctx, &call))
	}
	require.NoError(r.t, r.store.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: new(float64), Result: "3"}))
	batch.Count()
	r.train(batch, scores)
}

// spoken returns a request with instructions and a dialog of the given number of turns.
func (r *recorded) spoken(turns int) json.RawMessage {
	r.t.Helper()
	messages := []dialog.Message{{Role: dialog.System, Content: "You are a careful planner of long journeys."}, {Role: dialog.User, Content: "Where to?"}}
	for turn := range turns {
		messages = append(messages, dialog.Message{Role: dialog.Assistant, Content: "1234567"}, dialog.Message{Role: dialog.User, Content: fmt.Sprint("turn ", turn)})
	}
	request, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	require.NoError(r.t, err)
	return request
}

// train records the version that a step made of a batch.
func (r *recorded) train(batch model.Batch, scores model.Scores) {
	r.t.Helper()
	ctx := r.t.Context()
	data, err := hf.EncodeBatch(batch)
	require.NoError(r.t, err)
	digest, err := r.blobs.Put(ctx, data)
	require.NoError(r.t, err)
	_, _, err = r.store.PutBatch(ctx, record.Batch{Run: "critic", Policy: model.DefaultPolicy, Step: 1, Digest: digest})
	require.NoError(r.t, err)
	scores.Batch = digest
	if data, err = hf.EncodeScores(scores); err == nil {
		scores.Batch, err = r.blobs.Put(ctx, data)
	}
	require.NoError(r.t, err)
	_, _, err = r.store.PutVersion(ctx, model.Version{
		VersionID: model.VersionID{Run: "critic", Policy: model.DefaultPolicy, Number: 1}, Weights: "sha256:" + strings.Repeat("1", 64), Batch: digest, Scores: scores.Batch,
	})
	require.NoError(r.t, err)
	require.NoError(r.t, r.store.PutStep(ctx, record.Step{Run: "critic", Policy: model.DefaultPolicy, Step: 1, Batch: digest, Metrics: map[string]float64{"reward/mean": 0}}))
}

// texts returns the visible text of a page, without markup and with single spaces.
func texts(t testing.TB, body string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	require.NoError(t, err)
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "script" && n.Parent.Data != "title" {
			b.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestAdvantagesAreThoseOfTheTokens(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	r.criticRun()
	server := r.serve(nil)
	// The sum is −6.3 − 2.3 + 3.7 + 1.8 by calls, of 27 trained tokens.
	const want = "−0.115 −0.900 to +0.900"
	body, _ := get(t, server.URL+criticAttempt)
	require.Contains(t, texts(t, body), "Advantage "+want)
	body, _ = get(t, server.URL+"/runs/critic/train-1/0")
	require.Contains(t, texts(t, body), "advantage −0.115 , −0.900 to +0.900")
	body, _ = get(t, server.URL+"/runs/demo/train-1/0/0/2")
	require.Contains(t, texts(t, body), "Advantage −0.500 Version", "tokens that all have the same have no range")
}

func TestAnAttemptThatAnotherReplacedIsLost(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "attempt_replaced")
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/demo/train-1")
	require.Contains(t, texts(t, body), "lost 1")
	require.NotContains(t, texts(t, body), "running 1")
	body = shown.get(server.URL, "/runs/demo/train-1/0/0/1")
	require.Contains(t, links(t, body), "/runs/demo/train-1/0/0/2")
	body = shown.get(server.URL, "/runs/demo/train-3/4/0/1")
	require.Contains(t, texts(t, body), "Outcome running")
	body = shown.get(r.serve(terminated{}).URL, "/runs/demo/train-3/4/0/1")
	require.Contains(t, texts(t, body), "Outcome unfinished", "a run that has ended runs nothing")
}

// terminated is a Temporal that ended all runs before they could say so.
type terminated struct{ asked }

func (terminated) Runs(_ context.Context, runs []record.Run) ([]record.Run, error) {
	for i := range runs {
		runs[i].Status = record.Terminated
	}
	return runs, nil
}

func TestACallThatRepeatsItsRequestShowsIt(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "call_repeats")
	r := newRecorded(t, "plain")
	r.criticRun()
	a, err := r.store.BeginAttempt(t.Context(), record.RolloutID{Run: "critic", Kind: record.Try, Step: 1}, "t", record.Terms{Policy: model.DefaultPolicy, Codec: dialog.CompactName}, "c")
	require.NoError(t, err)
	for seq, messages := range []string{
		`{"role":"user","content":"where am I"}`, `{"role":"user","content":"where am I"}`, `{"role":"user","content":"where am I"},{"role":"user","content":"say it"}`,
		`{"role":"user","content":"where am I"},{"role":"user","content":"what else"}`, `{"role":"user","content":"where am I"}`,
	} {
		call := record.Exchange{Call: record.Call{Address: a, Seq: seq, ID: fmt.Sprint(seq), Parent: -1, Policy: model.DefaultPolicy, Key: fmt.Sprint(seq), Started: time.Unix(1, 0)}, Request: json.RawMessage(`{"model":"m","messages":[` + messages + `]}`)}
		require.NoError(t, r.store.AppendCall(t.Context(), &call))
	}
	server := r.serve(nil)
	body := shown.get(server.URL, "/runs/critic/try-1/0/0/1")
	for _, want := range []string{"as call 0: user where am I", "user say it", "of call 2 user what else", "of call 3 again: user where am I"} {
		require.Contains(t, texts(t, body), want)
	}
	body = shown.get(server.URL, criticAttempt)
	require.Contains(t, texts(t, body), "assistant 1234567 user turn 0 assistant 1234567 user turn 1")
}
