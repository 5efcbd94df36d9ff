package testsuite_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// replies records conversations of a run, of one reply each to the same request, and returns
// the ids of the replies.
func (r records) replies(t *testing.T, run string, texts ...string) (ids []string) {
	t.Helper()
	codec := dialog.Compact()
	prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: "hello"}}, nil)
	require.NoError(t, err)
	scorer, err := native.New(native.Options{Threads: 1}).NewTrainer(r.start)
	require.NoError(t, err)
	defer scorer.Close()
	for i, text := range texts {
		c, _, err := r.BeginConversation(t.Context(), record.Conversation{Run: run, Policy: model.DefaultPolicy, User: fmt.Sprint(i), Name: fmt.Sprint("c", i)},
			record.Terms{Policy: model.DefaultPolicy, Codec: "compact", ClientSampling: true})
		require.NoError(t, err)
		completion := append(codec.Encode(text), codec.Stop()[0])
		logprobs, _, err := scorer.Score(t.Context(), []model.Row{{Tokens: slices.Concat(prompt, completion), Temperature: 1}})
		require.NoError(t, err)
		ids = append(ids, fmt.Sprint(run, "-", i))
		require.NoError(t, r.AppendCall(t.Context(), &record.Exchange{
			Call: record.Call{
				Address: c.Address(), ID: ids[i], Parent: -1, Policy: model.DefaultPolicy, Key: "k", Prompt: prompt, Completion: completion,
				Logprobs: logprobs[0][len(prompt)-1:], Temperature: 1, Finish: "stop",
			},
			Request: json.RawMessage(`{}`), Response: json.RawMessage(`{}`), Served: &record.ServedCall{},
		}))
	}
	return ids
}

// segmentBatch returns the batch of step 1 of a run that learns from six conversations.
func (r records) segmentBatch(t *testing.T, run, objective string) string {
	t.Helper()
	s := learningSpec(objective)
	s.Traffic.Train.MinReplies = 6 // all of them: a segment that has been made stays as it is
	text, err := json.Marshal(s)
	require.NoError(t, err)
	_, _, err = r.CreateRun(t.Context(), record.Run{Name: run, WorkflowID: run, ExecutionID: "x", Spec: text, Status: record.Running})
	require.NoError(t, err)
	r.first(t, run, native.New(native.Options{Threads: 1}), r.start)
	require.NoError(t, r.Promote(t.Context(), record.Promotion{Run: run, Policy: model.DefaultPolicy, DecisionID: run, Previous: -1, Source: record.SourceGate}))
	ids := r.replies(t, run, "one", "two 2", "3", "four", "5 5", "six six")
	for i, id := range ids {
		f := record.Feedback{Run: run, ID: fmt.Sprint(i), Conversation: i, CallID: id}
		switch better, value := fmt.Sprint("better ", i), float64(i%3)-0.5; objective {
		case spec.ObjectiveReward:
			f.Reward = &value
		case spec.ObjectiveSupervised:
			f.CorrectedText = &better
		default:
			f.PreferredOver = ids[(i+1)%len(ids)]
		}
		_, _, err := r.PutFeedback(t.Context(), f)
		require.NoError(t, err)
	}
	c := &activities.Coordinator{Runs: r.Store, Ledger: r.Store, Attempts: r.Store, Traffic: r.Store, Blobs: r.blobs, Codecs: dialog.Named}
	in := activities.ChooseSegmentInput{Run: run, Policy: model.DefaultPolicy, Step: 1}
	require.Eventually(t, func() bool { // the conversations have to be idle for a moment
		got, err := c.ChooseSegment(t.Context(), in)
		require.NoError(t, err)
		return got.Reason == "" && got.Replies == len(ids)
	}, 30*time.Second, 100*time.Millisecond)
	made, err := c.SegmentBatch(t.Context(), in)
	require.NoError(t, err)
	return made.Batch
}

func TestEnginesAgreeOnSegments(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	for _, name := range []string{"gomlx", "torch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, e, other := newRecords(t), native.New(native.Options{Threads: 1}), engines(t)[1]
			if name == "torch" {
				other = torchEngine(t)
			}
			r.start = randomCheckpoint(model.Tiny(dialog.Compact().VocabSize()))
			most := differences{}
			for _, objective := range []string{spec.ObjectiveReward, spec.ObjectiveSupervised, spec.ObjectivePreference} {
				s, digest := feedbackSpec(2, 2, spec.Loss{}), r.segmentBatch(t, "made-"+objective, objective)
				want, first := r.step(t, e, "native "+objective, s, digest)
				got, second := r.step(t, other, "other "+objective, s, digest)
				require.Equal(t, 4, second.Updates)
				require.NotEqual(t, r.start.Weights[0].Data, second.Weights[0].Data, objective)
				most.add(stepDifferences(s.Training.Optimizer.LearningRate, []model.Version{want, got}, []model.Checkpoint{first, second}))
				most.requireSmall(t)
			}
			t.Logf("largest differences: %+v", most)
		})
	}
}
