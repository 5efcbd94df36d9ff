package page_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// learnReply records a step that learned from the reply to a call of conversation 0, with the
// same advantage for each token, and returns the digest of its batch.
func (r *recorded) learnReply(step, seq int, advantage float32) string {
	r.t.Helper()
	ctx, id := r.t.Context(), fmt.Sprint("learned ", step)
	r.say(record.Feedback{ID: id, Conversation: 0, CallID: fmt.Sprintf("chatcmpl-0-%d", seq), Reward: value64(float64(advantage))})
	segment := record.Segment{Run: r.name, Policy: model.DefaultPolicy, Step: step, Objective: spec.ObjectiveReward, Feedback: []string{id}, Conversations: []int{0}, Calls: []int{3}, Replies: 1}
	_, _, err := r.store.PutSegment(ctx, segment)
	require.NoError(r.t, err)
	reply := dialog.Compact().Encode("4*1+0") // as call makes it
	row := model.BatchRow{Row: model.Row{Tokens: append([]int32{1}, reply...), Temperature: 1}, Sampled: []bool{false}, Logprobs: []float32{0}, Advantages: []float32{0}, Calls: []int32{-1}}
	for range reply {
		row.Sampled, row.Logprobs = append(row.Sampled, true), append(row.Logprobs, -1)
		row.Advantages, row.Calls = append(row.Advantages, advantage), append(row.Calls, int32(seq))
	}
	b := model.Batch{
		Format: model.BatchFormat, Policy: model.DefaultPolicy, Step: step, VocabSize: dialog.Compact().VocabSize(), Rows: []model.BatchRow{row},
		Trajectories: []model.BatchTrajectory{{Attempt: record.ConversationAddress(r.name, 0).String()}},
	}
	b.Count()
	file, err := hf.EncodeBatch(b)
	require.NoError(r.t, err)
	digest, err := r.blobs.Put(ctx, file)
	require.NoError(r.t, err)
	_, _, err = r.store.PutBatch(ctx, record.Batch{Run: r.name, Policy: model.DefaultPolicy, Step: step, Digest: digest})
	require.NoError(r.t, err)
	v := model.Version{VersionID: model.VersionID{Run: r.name, Policy: model.DefaultPolicy, Number: step}, Weights: fmt.Sprintf("sha256:%064d", step), Batch: digest}
	v.Scores = r.scores(digest)
	_, _, err = r.store.PutVersion(ctx, v)
	require.NoError(r.t, err)
	return digest
}

// newLearned is newUsed with a run "pair" of several policies beside it, and with two steps more,
// which learned from the third and from the first reply of conversation 0. It returns the digest
// of the batch of the second step.
func newLearned(t testing.TB) (r *recorded, last string) {
	t.Helper()
	r = newUsed(t, "plain")
	r.learnReply(4, 2, 0.75)
	last = r.learnReply(5, 0, -0.25)
	r.pair()
	return r, last
}

// pair records a run with two policies, each with a conversation and a segment. The candidate of
// one is compared in use.
func (r *recorded) pair() {
	r.t.Helper()
	ctx := r.t.Context()
	_, _, err := r.store.CreateRun(ctx, record.Run{
		Name: "pair", Spec: json.RawMessage(`{"policies":{"checker":{},"writer":{"match":[{"agent":"w"}]}},"traffic":{"record":"all","train":{"experiment":{}}}}`),
	})
	require.NoError(r.t, err)
	for number, policy := range []string{"writer", "checker"} {
		c, _, err := r.store.BeginConversation(ctx, record.Conversation{Run: "pair", Policy: policy, Experiment: 3}, record.Terms{Policy: policy, Codec: dialog.CompactName, Temperature: 1})
		require.NoError(r.t, err)
		call := r.call(c.Address(), 0, -1, nil)
		call.ID, call.Policy, call.Version, call.Served = "of-"+policy, policy, 0, &record.ServedCall{}
		require.NoError(r.t, r.store.AppendCall(ctx, &call))
		_, _, err = r.store.PutFeedback(ctx, record.Feedback{Run: "pair", ID: policy, Conversation: number, Thumb: record.ThumbUp, At: noon})
		require.NoError(r.t, err)
		_, _, err = r.store.PutSegment(ctx, record.Segment{
			Run: "pair", Policy: policy, Step: number + 1, Objective: spec.ObjectiveReward, Feedback: []string{policy}, Conversations: []int{number}, Calls: []int{1}, Replies: 1,
		})
		require.NoError(r.t, err)
	}
	_, _, err = r.store.BeginExperiment(ctx, record.Experiment{Run: "pair", Policy: "writer", Candidate: 3, Control: 2, Share: 0.5})
	require.NoError(r.t, err)
}

func TestTheRepliesOfAConversationHaveTheAdvantagesByWhichStepsLearned(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "conversation_learned")
	r, gone := newLearned(t)
	body := shown.get(r.serve(nil).URL, "/runs/used/served-0/0/0/1")
	calls := strings.Split(body, `<article class="call`)
	require.Len(t, calls, 4)
	require.Contains(t, texts(t, calls[0]), "Advantage +0.250 −0.250 to +0.750 of 10 trained tokens")
	require.Contains(t, texts(t, calls[1]), "advantage −0.250")
	require.Contains(t, texts(t, calls[2]), "not trained")
	require.NotContains(t, texts(t, calls[2]), "advantage +")
	require.Contains(t, texts(t, calls[3]), "advantage +0.750")
	require.Equal(t, 5, strings.Count(calls[3], "up3"), "each token has the colour of its advantage")
	require.Equal(t, 5, strings.Count(calls[1], "down1"))

	// Another user of the step was forgotten.
	require.NoError(t, r.blobs.Remove(t.Context(), gone))
	body, reply := get(t, r.serve(nil).URL+"/runs/used/served-0/0/0/1")
	require.Equal(t, http.StatusOK, reply.StatusCode)
	calls = strings.Split(body, `<article class="call`)
	require.Contains(t, texts(t, calls[0]), "Advantage +0.750 of 5 trained tokens")
	require.NotContains(t, texts(t, calls[1]), "advantage −0.250")
	require.Contains(t, texts(t, calls[3]), "advantage +0.750")
}

func TestAConversationThatNoStepTrainedHasNoAdvantages(t *testing.T) {
	t.Parallel()
	body, _ := get(t, newUsed(t, "plain").serve(nil).URL+"/runs/used/served-0/0/0/1")
	require.NotContains(t, body, "<dt>Advantage")
	require.NotContains(t, body, `<span class="tag">not trained`)
}

func TestWhatUsersDidWithOneOfSeveralPoliciesNamesIt(t *testing.T) {
	t.Parallel()
	shown := goldenOf(t, "conversations_policies")
	r := newUsed(t, "plain")
	r.pair()
	at := r.serve(nil).URL
	text := func(path string) string { return texts(t, shown.get(at, "/runs/pair/"+path)) }

	require.Regexp(t, `checker:0 control.*writer:0 control`, text("conversations"))
	require.NotContains(t, text("conversations?policy=writer"), "checker:0")
	require.Contains(t, text("conversations?policy=nobody"), "checker:0", "there is no such policy to ask for")
	body, _ := get(t, at+"/runs/pair/served-0/0/0/1")
	require.Contains(t, texts(t, body), "Policy writer Version writer:0")
	require.Contains(t, texts(t, body), "policy writer", "of the call")
	require.Subset(t, links(t, body), []string{"/runs/pair/experiments?policy=writer#version-3", "/runs/pair/conversations?policy=writer&version=0"})

	require.Contains(t, text("experiments"), "No version was compared in use yet.")
	require.Contains(t, text("experiments?policy=writer"), "Version 3 against version 2 policy writer running")
	require.Contains(t, text("segments?policy=checker"), "2 policy checker")
	require.NotContains(t, text("segments?policy=checker"), "policy writer 0")
	require.Contains(t, text("train-1?policy=writer"), "Step 1 policy writer")
	_, reply := get(t, at+"/runs/pair/train-1?policy=checker")
	require.Equal(t, http.StatusNotFound, reply.StatusCode)
	body, _ = get(t, at+"/runs/used/experiments")
	require.False(t, slices.ContainsFunc(links(t, body), func(l string) bool { return strings.Contains(l, "policy=") }), "a run with one policy names none")
}
