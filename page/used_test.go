package page_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/experiment"
	"github.com/fulgurite/fulgurite/spec"
)

// Users of the run of newUsed, by the hashes under which the record knows them.
const (
	ann = "a11a11a11a11a11a11a11a11a11a11a11a11a11a11a11a11a11a11a11a11a11a"
	bob = "b0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb0bb"
)

// noon is when the first conversation of newUsed began.
var noon = time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC)

// newUsed makes a store with the run "used", which learns from conversations: 0 with ann has all
// kinds of feedback, 1 was redacted and is with a candidate, 2 with bob is the control's, 3 asked
// for its version and has no feedback, and 4 has a label of its own. Three steps learned from them, and of
// three experiments one is running.
func newUsed(t testing.TB, text string) *recorded {
	t.Helper()
	r := newEmpty(t, text)
	r.name = "used"
	sp := spec.Spec{
		Seed: seed, Traffic: &spec.Traffic{Record: spec.RecordAll, Train: &spec.TrafficTraining{Objective: spec.ObjectiveReward, MinReplies: 1, Experiment: &spec.TrafficExperiment{Share: 0.25}}},
		Agent: spec.Agent{Command: []string{"agent"}},
	}.WithDefaults()
	encoded, err := json.Marshal(sp)
	require.NoError(t, err)
	_, _, err = r.store.CreateRun(t.Context(), record.Run{Name: r.name, WorkflowID: r.name, ExecutionID: "e", Spec: encoded})
	require.NoError(t, err)
	_, _, err = r.store.PutVersion(t.Context(), model.Version{VersionID: model.VersionID{Run: r.name, Policy: model.DefaultPolicy}, Parent: -1, Weights: fmt.Sprintf("sha256:%064d", 9)})
	require.NoError(t, err)
	r.talk(record.Conversation{User: ann, Name: "support: " + printable(text), Key: "my-app"}, 3, false)
	r.talk(record.Conversation{User: ann, Version: 3, Experiment: 3, Candidate: true}, 1, true)
	r.talk(record.Conversation{User: bob, Version: 2, Experiment: 3}, 2, false)
	r.talk(record.Conversation{Version: 1, Pinned: true}, 1, false)
	r.talk(record.Conversation{User: bob}, 1, false)
	r.say(record.Feedback{ID: "thumb", Conversation: 0, CallID: "chatcmpl-0-0", Thumb: record.ThumbUp, User: ann, Comment: text, Labels: []string{"kind", text}, Key: "my-app"})
	r.say(record.Feedback{ID: "fixed", Conversation: 0, CallID: "chatcmpl-0-1", CorrectedText: lines("first line", text, "the last line")})
	r.say(record.Feedback{ID: "equal", Conversation: 0, CallID: "chatcmpl-0-1", CorrectedText: &r.text})
	r.say(record.Feedback{ID: "worse", Conversation: 0, CallID: "chatcmpl-0-2", PreferredOver: "chatcmpl-2-0", User: bob, Reward: value64(-0.25)})
	r.say(record.Feedback{ID: "whole", Conversation: 0, Reward: value64(0.5), Labels: []string{"kind"}})
	r.say(record.Feedback{ID: "redacted", Conversation: 1, CallID: "chatcmpl-1-0", Thumb: record.ThumbDown, CorrectedText: lines("EMAIL"), Redacted: true})
	r.say(record.Feedback{ID: "last", Conversation: 4, Thumb: record.ThumbDown, Labels: []string{"own"}})
	r.learn(record.Segment{Step: 1, Parent: 0, Objective: spec.ObjectiveReward, Feedback: []string{"thumb", "whole"}, Conversations: []int{0}, Calls: []int{2}, Replies: 3})
	r.learn(record.Segment{Step: 2, Parent: 0, Objective: spec.ObjectivePreference, Feedback: []string{"worse", "last"}, Conversations: []int{0, 4}, Calls: []int{3, 1}, Replies: 1, LeftOut: map[string]int{"the reply was sampled greedily": 7, text: 2}})
	r.learn(record.Segment{Step: 3, Parent: 2, Objective: spec.ObjectiveSupervised, Feedback: []string{"fixed"}, Conversations: []int{0}, Calls: []int{2}, Replies: 1})
	r.compared(1, 0, record.ExperimentWithdrawn, -0.2)
	r.compared(2, 0, record.ExperimentPromoted, 0.2)
	r.compared(3, 2, record.ExperimentRunning, 0)
	return r
}

func value64(v float64) *float64 { return &v }

func lines(all ...string) *string {
	text := strings.Join(all, "\n")
	return &text
}

// talk records a conversation with calls. Those of one that was redacted have no tokens.
func (r *recorded) talk(c record.Conversation, calls int, redacted bool) {
	r.t.Helper()
	c.Run, c.Policy = r.name, model.DefaultPolicy
	c, _, err := r.store.BeginConversation(r.t.Context(), c, record.Terms{Policy: c.Policy, Version: c.Version, Codec: dialog.CompactName, Temperature: 1})
	require.NoError(r.t, err)
	var before []int32
	for seq := range calls {
		call := r.call(c.Address(), seq, seq-1, before)
		call.ID, call.Version, call.Started = fmt.Sprintf("chatcmpl-%d-%d", c.Number, seq), c.Version, noon.Add(time.Duration(seq)*time.Minute)
		call.Served = &record.ServedCall{Client: c.Key, Digest: fmt.Sprint(c.Number, seq), Redacted: redacted}
		if redacted {
			call.Prompt, call.Completion, call.Logprobs, call.Parent = nil, nil, nil, -1
		}
		require.NoError(r.t, r.store.AppendCall(r.t.Context(), &call))
		before = append(append([]int32{}, call.Prompt...), call.Completion...)
	}
}

// say records feedback, a minute after what was said before.
func (r *recorded) say(f record.Feedback) {
	r.t.Helper()
	r.said++
	f.Run, f.At = r.name, noon.Add(time.Duration(r.said)*time.Minute)
	_, created, err := r.store.PutFeedback(r.t.Context(), f)
	require.NoError(r.t, err)
	require.True(r.t, created, f.ID)
}

// learn records a segment, the version made of it, and that its step is finished.
func (r *recorded) learn(one record.Segment) {
	r.t.Helper()
	one.Run, one.Policy = r.name, model.DefaultPolicy
	_, created, err := r.store.PutSegment(r.t.Context(), one)
	require.NoError(r.t, err)
	require.True(r.t, created)
	b := model.Batch{Format: model.BatchFormat, Policy: one.Policy, Step: one.Step, VocabSize: 1}
	for _, n := range one.Conversations {
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: record.ConversationAddress(r.name, n).String()})
	}
	file, err := hf.EncodeBatch(b)
	require.NoError(r.t, err)
	digest, err := r.blobs.Put(r.t.Context(), file)
	require.NoError(r.t, err)
	_, _, err = r.store.PutBatch(r.t.Context(), record.Batch{Run: r.name, Policy: one.Policy, Step: one.Step, Digest: digest})
	require.NoError(r.t, err)
	_, _, err = r.store.PutVersion(r.t.Context(), model.Version{VersionID: model.VersionID{Run: r.name, Policy: one.Policy, Number: one.Step}, Parent: one.Parent, Weights: fmt.Sprintf("sha256:%064d", one.Step), Batch: digest})
	require.NoError(r.t, err)
	require.NoError(r.t, r.store.PutStep(r.t.Context(), record.Step{Run: r.name, Policy: one.Policy, Step: one.Step, Batch: digest, Metrics: map[string]float64{"reward/mean": 0.5, "train/kl": 0.001}}))
}

// compared records an experiment in which users judged the candidate so much better.
func (r *recorded) compared(candidate, control int, status record.ExperimentStatus, by float64) {
	r.t.Helper()
	e := record.Experiment{Run: r.name, Policy: model.DefaultPolicy, Candidate: candidate, Control: control, Share: 0.25}
	_, _, err := r.store.BeginExperiment(r.t.Context(), e)
	require.NoError(r.t, err)
	settings := experiment.Settings{Share: e.Share, Level: 0.05, MinConversations: 5, MaxConversations: 2000}
	var outcomes []experiment.Outcome
	for i := range 200 {
		if status == record.ExperimentRunning && i == 6 {
			break // before there is an interval
		}
		for _, of := range []bool{false, true} {
			v := 0.4 + 0.2*float64(i%2)
			if of {
				v += by
			}
			outcomes = append(outcomes, experiment.Outcome{Unit: fmt.Sprint(of, i), Candidate: of, Value: v})
		}
	}
	result, err := experiment.Compare(settings, outcomes)
	require.NoError(r.t, err)
	e.Result, err = json.Marshal(result)
	require.NoError(r.t, err)
	if e.Status, e.Reason = status, "users judged it: "+r.text; status == record.ExperimentRunning {
		require.NoError(r.t, r.store.PutExperimentResult(r.t.Context(), e.Run, e.Policy, candidate, e.Result))
		return
	}
	require.NoError(r.t, r.store.EndExperiment(r.t.Context(), e))
}
