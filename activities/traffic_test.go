package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/spec"
)

// use is a run that learns from conversations.
type use struct {
	*testEnv
	said    int
	version int       // that replies
	logprob float32   // that is recorded of each token
	begun   time.Time // of conversations; the zero time is now
}

func newUse(t *testing.T, change func(*spec.Spec)) *use {
	t.Helper()
	u := &use{testEnv: newTestEnv(t)}
	u.coordinator.Traffic, u.coordinator.Experiments = u.store, u.store
	s := u.spec()
	s.Tasks = spec.Tasks{Gate: "tasks.jsonl"}
	s.Training = spec.Training{}
	s.Promotion.Significance = 1
	s.Traffic = &spec.Traffic{Record: spec.RecordAll, IdleMinutes: 0.001, Train: &spec.TrafficTraining{MinReplies: 2}}
	if change != nil {
		change(&s)
	}
	u.start(s)
	u.promoted(0)
	return u
}

// promoted makes a version the promoted one.
func (u *use) promoted(version int) {
	u.t.Helper()
	require.NoError(u.t, u.store.Promote(u.t.Context(), record.Promotion{
		Run: "demo", Policy: model.DefaultPolicy, DecisionID: fmt.Sprintf("to %d", version), Version: version, Previous: max(-1, version-1), Source: record.SourceGate,
	}))
}

// converses records a conversation of one user with a reply for each text, of an experiment if
// candidate is not nil, and returns its number.
func (u *use) converses(candidate *bool, texts ...string) int {
	u.t.Helper()
	c := record.Conversation{Run: "demo", Policy: model.DefaultPolicy, User: fmt.Sprintf("user %d", u.said), Name: fmt.Sprintf("c%d", u.said), Begun: u.begun}
	u.said++
	if candidate != nil {
		c.Experiment, c.Candidate = 1, *candidate
	}
	c, _, err := u.store.BeginConversation(u.t.Context(), c, record.Terms{Policy: model.DefaultPolicy, Codec: "compact", ClientSampling: true})
	require.NoError(u.t, err)
	for _, text := range texts {
		u.reply(c, text)
	}
	return c.Number
}

// reply adds a reply to a conversation.
func (u *use) reply(c record.Conversation, text string) {
	u.t.Helper()
	calls, err := u.store.Calls(u.t.Context(), c.Address())
	require.NoError(u.t, err)
	codec := dialog.Compact()
	prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: "hello"}}, nil)
	require.NoError(u.t, err)
	completion := append(codec.Encode(text), codec.Stop()[0])
	require.NoError(u.t, u.store.AppendCall(u.t.Context(), &record.Exchange{
		Call: record.Call{
			Address: c.Address(), Seq: len(calls), ID: fmt.Sprintf("reply-%d-%d", c.Number, len(calls)), Parent: -1, Policy: model.DefaultPolicy, Key: "k", Occurrence: len(calls),
			Prompt: prompt, Completion: completion, Logprobs: slices.Repeat([]float32{u.logprob}, len(completion)), Temperature: 1, Version: u.version, Finish: "stop",
		},
		Request: json.RawMessage(`{}`), Response: json.RawMessage(`{}`), Served: &record.ServedCall{},
	}))
}

// rewritten adds a reply to a conversation that a redactor changed.
func (u *use) rewritten(c record.Conversation) {
	u.t.Helper()
	calls, err := u.store.Calls(u.t.Context(), c.Address())
	require.NoError(u.t, err)
	require.NoError(u.t, u.store.AppendCall(u.t.Context(), &record.Exchange{
		Call: record.Call{
			Address: c.Address(), Seq: len(calls), ID: fmt.Sprintf("reply-%d-%d", c.Number, len(calls)), Parent: -1, Policy: model.DefaultPolicy, Key: "k", Occurrence: len(calls),
			Temperature: 1, Version: u.version, Finish: "stop",
		},
		Request: json.RawMessage(`{}`), Response: json.RawMessage(`{}`), Served: &record.ServedCall{Redacted: true},
	}))
}

// judges gives a conversation a value.
func (u *use) judges(conversation int, value float64) {
	u.t.Helper()
	_, _, err := u.store.PutFeedback(u.t.Context(), record.Feedback{Run: "demo", ID: fmt.Sprintf("f%d-%v", conversation, value), Conversation: conversation, Reward: &value, At: time.Unix(int64(1000+conversation), 0)})
	require.NoError(u.t, err)
}

// chooses chooses the segment of a step. It waits until all conversations have ended.
func (u *use) chooses(step int) activities.ChooseSegmentResult {
	u.t.Helper()
	u.allEnded()
	out, err := do[activities.ChooseSegmentResult](u.t, u.coordinator.ChooseSegment, activities.ChooseSegmentInput{Run: "demo", Policy: model.DefaultPolicy, Step: step})
	require.NoError(u.t, err)
	return out
}

// allEnded waits until all conversations that somebody judged have ended.
func (u *use) allEnded() {
	u.t.Helper()
	kinds := []record.FeedbackKind{record.FeedbackValue, record.FeedbackCorrection, record.FeedbackPreference}
	require.Eventually(u.t, func() bool {
		unused, err := u.store.UnusedFeedback(u.t.Context(), "demo", kinds, time.Now().Add(-100*time.Millisecond), time.Now().AddDate(100, 0, 0), 1000)
		require.NoError(u.t, err)
		all, err := u.store.UnusedFeedback(u.t.Context(), "demo", kinds, time.Now().Add(time.Hour), time.Now().AddDate(100, 0, 0), 1000)
		require.NoError(u.t, err)
		return len(unused) == len(all)
	}, 10*time.Second, 10*time.Millisecond)
}

func (u *use) batch(step int) (digest string, b model.Batch) {
	u.t.Helper()
	made, err := do[activities.SegmentBatchResult](u.t, u.coordinator.SegmentBatch, activities.SegmentBatchInput{Run: "demo", Policy: model.DefaultPolicy, Step: step})
	require.NoError(u.t, err)
	data, err := u.blobs.Get(u.t.Context(), made.Batch)
	require.NoError(u.t, err)
	b, err = hf.DecodeBatch(data)
	require.NoError(u.t, err)
	require.NoError(u.t, b.Check())
	return made.Batch, b
}

func TestDataOfASegmentIsThatOfItsCalls(t *testing.T) {
	t.Parallel()
	u := newUse(t, nil)
	number := u.converses(nil, "a", "b")
	u.judges(number, 1)
	u.judges(u.converses(nil, "c"), -1)
	require.Empty(t, u.chooses(1).Reason)
	_, b := u.batch(1)
	c, err := u.store.Conversation(t.Context(), "demo", number)
	require.NoError(t, err)
	u.reply(c, "later")
	source := dataset.Source{Store: u.store, Blobs: u.blobs, Run: "demo", Policy: model.DefaultPolicy}
	var calls []string
	require.NoError(t, source.Transitions(t.Context(), func(row dataset.Transition) error {
		calls = append(calls, row.Attempt)
		return nil
	}))
	first := record.ConversationAddress("demo", number).String()
	require.ElementsMatch(t, []string{first, first, record.ConversationAddress("demo", 1).String()}, calls, "without the reply that came later")
	sequences := 0
	require.NoError(t, source.Sequences(t.Context(), func(dataset.Sequence) error { sequences++; return nil }))
	require.Len(t, b.Rows, sequences)
	require.NoError(t, u.store.RemoveConversation(t.Context(), "demo", number))
	err = source.Transitions(t.Context(), func(dataset.Transition) error { return nil })
	require.ErrorContains(t, err, "conversation "+first+" was removed since")
}

func TestASegmentUsesFeedbackOnce(t *testing.T) {
	t.Parallel()
	u := newUse(t, nil)
	first := u.converses(nil, "a")
	u.judges(first, 1)
	few := u.chooses(1)
	require.Equal(t, "1 judged reply of the 2 that traffic.train.min_replies asks for, from 1 new judgment of conversations that have ended", few.Reason)
	_, err := u.store.Segment(t.Context(), "demo", model.DefaultPolicy, 1)
	require.ErrorIs(t, err, record.ErrNotFound)

	second := u.converses(nil, "b", "c")
	u.judges(second, -1)
	got := u.chooses(1)
	require.Empty(t, got.Reason)
	require.Equal(t, 3, got.Replies)
	require.Zero(t, got.Parent)
	again := u.chooses(1)
	require.Equal(t, got, again, "the first choice stands")
	require.NotEmpty(t, u.chooses(2).Reason, "nothing is left")
}

func TestWhatIsSaidAfterASegmentWasChosenIsNoPartOfIt(t *testing.T) {
	t.Parallel()
	u, twin := newUse(t, nil), newUse(t, nil)
	for _, one := range []*use{u, twin} {
		one.judges(one.converses(nil, "a"), 1)
		one.judges(one.converses(nil, "b"), 0)
		one.chooses(1)
	}
	c, err := u.store.Conversation(t.Context(), "demo", 0)
	require.NoError(t, err)
	u.reply(c, "later")
	u.judges(0, 0.5)
	digest, b := u.batch(1)
	other, _ := twin.batch(1)
	require.Equal(t, other, digest)
	require.Len(t, b.Rows, 2)
	again, _ := u.batch(1)
	require.Equal(t, digest, again)
}

// A worker that is killed makes the batch later than the segment was chosen, and the conversation
// may have gone on with texts that were rewritten.
func TestTextsThatAreRewrittenAfterASegmentWasChosenChangeNoBatch(t *testing.T) {
	t.Parallel()
	u, twin := newUse(t, nil), newUse(t, nil)
	for _, one := range []*use{u, twin} {
		one.judges(one.converses(nil, "a"), 1)
		one.judges(one.converses(nil, "b"), 0)
		one.chooses(1)
	}
	c, err := u.store.Conversation(t.Context(), "demo", 0)
	require.NoError(t, err)
	u.rewritten(c)
	digest, b := u.batch(1)
	other, _ := twin.batch(1)
	require.Equal(t, other, digest)
	require.Len(t, b.Rows, 2)

	u.judges(0, -1)
	u.judges(u.converses(nil, "c"), 1)
	u.judges(u.converses(nil, "d"), 0)
	chosen := u.chooses(2)
	require.Equal(t, 2, chosen.Replies)
	require.Contains(t, chosen.LeftOut, "1 the stored texts differ from what was said", "the conversation has a call that was rewritten by now")
}

func TestAStepLearnsFromASegmentAsThePromotedVersion(t *testing.T) {
	t.Parallel()
	u := newUse(t, nil)
	trainer := u.trainer()
	for step := 1; step <= 2; step++ {
		for i := range 4 {
			u.judges(u.converses(nil, string(rune('a'+i))), float64(i%2))
		}
		chosen := u.chooses(step)
		digest, _ := u.batch(step)
		v, err := do[activities.TrainStepResult](t, trainer.TrainStep, activities.TrainStepInput{Run: "demo", Policy: model.DefaultPolicy, Step: step, Batch: digest, Parent: &chosen.Parent})
		require.NoError(t, err)
		require.Equal(t, step, v.Number)
	}
	made, err := u.store.Version(t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: 2})
	require.NoError(t, err)
	require.Zero(t, made.Parent, "version 1 was not promoted")
}

func TestAnExperimentEndsAsItsUsersDecide(t *testing.T) {
	t.Parallel()
	for want, values := range map[record.ExperimentStatus][2]float64{record.ExperimentPromoted: {1, -1}, record.ExperimentWithdrawn: {-1, 1}} {
		u := newUse(t, func(s *spec.Spec) {
			s.Traffic.Train.Experiment = &spec.TrafficExperiment{Share: 0.5, MinConversations: 30, MaxConversations: 200}
		})
		in := activities.ExperimentInput{Run: "demo", Policy: model.DefaultPolicy, Candidate: 1, Control: 0}
		for i := range 120 {
			candidate := i%2 == 0
			value := values[1]
			if candidate {
				value = values[0]
			}
			if i%10 >= 8 { // not all agree
				value = -value
			}
			u.judges(u.converses(&candidate, "a"), value)
		}
		end, err := do[activities.ExperimentResult](t, u.coordinator.RunExperiment, in)
		require.NoError(t, err)
		require.Equal(t, want, end.Status)
		again, err := do[activities.ExperimentResult](t, u.coordinator.RunExperiment, in)
		require.NoError(t, err)
		require.Equal(t, end, again, "it ended once")
	}
}

func TestAnExperimentEndsWhenThePromotedVersionIsMoved(t *testing.T) {
	t.Parallel()
	u := newUse(t, func(s *spec.Spec) { s.Traffic.Train.Experiment = &spec.TrafficExperiment{} })
	u.promoted(1)
	end, err := do[activities.ExperimentResult](t, u.coordinator.RunExperiment, activities.ExperimentInput{Run: "demo", Policy: model.DefaultPolicy, Candidate: 2, Control: 0})
	require.NoError(t, err)
	require.Equal(t, record.ExperimentEnded, end.Status)
	require.Equal(t, "version 1 was promoted meanwhile, in place of version 0", end.Reason)
}

func TestARunThatEndsEndsItsExperiment(t *testing.T) {
	t.Parallel()
	u := newUse(t, func(s *spec.Spec) { s.Traffic.Train.Experiment = &spec.TrafficExperiment{} })
	_, _, err := u.store.BeginExperiment(t.Context(), record.Experiment{Run: "demo", Policy: model.DefaultPolicy, Candidate: 1, Share: 0.1})
	require.NoError(t, err)
	require.NoError(t, u.coordinator.FinishRun(t.Context(), activities.FinishRunInput{Run: "demo", ExecutionID: execution, Status: record.Failed}))
	_, err = u.store.RunningExperiment(t.Context(), "demo", model.DefaultPolicy)
	require.ErrorIs(t, err, record.ErrNotFound)
}

// refusesSegments is a run that says why it does not learn.
type refusesSegments struct{}

func (refusesSegments) RequestSegment(context.Context, string, string) (activities.RequestSegmentResult, error) {
	return activities.RequestSegmentResult{Message: "no step: it is paused"}, nil
}

func TestARunThatHasEndedIsAskedForNoSegment(t *testing.T) {
	t.Parallel()
	u := newUse(t, nil)
	u.coordinator.Segments = refusesSegments{}
	in := activities.RequestSegmentInput{Run: "demo", ID: "1"}
	r, err := do[activities.RequestSegmentResult](t, u.coordinator.RequestSegment, in)
	require.NoError(t, err)
	require.Equal(t, "no step: it is paused", r.Message)
	require.NoError(t, u.store.FinishRun(t.Context(), "demo", record.Completed, nil))
	_, err = do[activities.RequestSegmentResult](t, u.coordinator.RequestSegment, in)
	require.ErrorContains(t, err, "run demo is completed and learns nothing more")
}

func TestARemovalThatHasNotEndedIsAReasonForNoStep(t *testing.T) {
	t.Parallel()
	u := newUse(t, nil)
	u.judges(u.converses(nil, "a"), 1)
	u.judges(u.converses(nil, "b"), 0)
	run, err := u.store.Run(t.Context(), "demo")
	require.NoError(t, err)
	_, _, err = u.store.BeginForgetting(t.Context(), run, record.Forgotten{Run: "demo", What: record.ForgottenUser, Task: "hash/1", By: "me"})
	require.NoError(t, err)
	require.Contains(t, u.chooses(1).Reason, "the removal of one of its users has not ended")
}

func TestWhatCannotBeLearnedDoesNotStandBeforeTheRest(t *testing.T) {
	t.Parallel()
	u := newUse(t, func(s *spec.Spec) {
		s.Traffic.Train.Objective, s.Traffic.Train.MinReplies, s.Traffic.Train.MaxReplies = spec.ObjectiveSupervised, 1, 1
	})
	for range 10 { // more than a choice reads
		u.judges(u.converses(nil, "a"), 1)
	}
	n := u.converses(nil, "a")
	text := "b"
	_, _, err := u.store.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: "better", Conversation: n, CallID: fmt.Sprintf("reply-%d-0", n), CorrectedText: &text})
	require.NoError(t, err)
	require.Equal(t, 1, u.chooses(1).Replies)
}

// An external server recorded what the replies of the test have as log-probabilities. Only
// those of the version that is trained can be compared with the trainer's.
func TestASegmentIsHeldToTheLogProbabilitiesOfItsParent(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		version int // that replied
		logprob float32
		length  int // of each of four replies, in characters
		refused bool
		metric  bool
	}{
		{version: 0, logprob: sampledAt + 4.5, length: 30, refused: true},
		{version: 0, logprob: sampledAt + 4.5, length: 1, metric: true}, // a few tokens are no sign of a server that is wrong
		{version: 0, logprob: sampledAt, length: 30, metric: true},
		{version: 9, logprob: sampledAt + 4.5, length: 30},
	} {
		u := newUse(t, func(s *spec.Spec) {
			s.Sampling.Server = &spec.Server{Type: spec.ServerVLLM, URLs: []string{"http://127.0.0.1:1"}, Model: "m", Directory: "/adapters", Mismatch: 0.5}
		})
		u.version, u.logprob = one.version, one.logprob
		for i := range 4 {
			u.judges(u.converses(nil, strings.Repeat("a", one.length)), float64(i%2))
		}
		chosen := u.chooses(1)
		digest, _ := u.batch(1)
		v, err := do[activities.VersionResult](t, u.trainer().TrainStep, activities.TrainStepInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1, Batch: digest, Parent: &chosen.Parent})
		if one.refused {
			requireNoRetry(t, err, "sampling.server.mismatch is 0.5: what the servers recorded are not the log-probabilities of version demo@0")
			continue
		}
		require.NoError(t, err)
		made, err := u.store.Version(t.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: v.Number})
		require.NoError(t, err)
		_, ok := made.Metrics["train/mismatch"]
		require.Equal(t, one.metric, ok)
	}
}

// A clock that was ahead for a while leaves conversations whose last call is in the future.
func TestAConversationFromTheFutureIsLearnedFromOnce(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		ahead   time.Duration
		learned bool
	}{{48 * time.Hour, true}, {20 * time.Minute, false}} { // the second may go on: clocks differ by minutes
		u := newUse(t, nil)
		u.begun = time.Now().Add(one.ahead)
		first, second := u.converses(nil, "a"), u.converses(nil, "b")
		for i, n := range []int{first, second} {
			value := float64(i)
			_, _, err := u.store.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: fmt.Sprint(n), Conversation: n, Reward: &value, At: u.begun})
			require.NoError(t, err)
		}
		in := activities.ChooseSegmentInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1}
		got, err := do[activities.ChooseSegmentResult](t, u.coordinator.ChooseSegment, in)
		require.NoError(t, err)
		require.Equal(t, one.learned, got.Reason == "", got.Reason)
		if !one.learned {
			continue
		}
		require.Equal(t, 2, got.Replies)
		// The conversations go on after the clock was set right.
		for _, n := range []int{first, second} {
			c, err := u.store.Conversation(t.Context(), "demo", n)
			require.NoError(t, err)
			u.reply(c, "c")
			u.judges(n, float64(n))
		}
		in.Step = 2
		again, err := do[activities.ChooseSegmentResult](t, u.coordinator.ChooseSegment, in)
		require.NoError(t, err)
		require.Equal(t, 2, again.Replies, "the new replies alone")
	}
}

// Feedback from before its conversation, or from long after it, is used once, too.
func TestFeedbackOfAClockThatJumpedIsUsedOnce(t *testing.T) {
	t.Parallel()
	u := newUse(t, nil)
	for i, at := range []time.Time{time.Unix(1, 0), time.Now().AddDate(1, 0, 0)} {
		value := float64(i)
		_, _, err := u.store.PutFeedback(t.Context(), record.Feedback{Run: "demo", ID: fmt.Sprint(i), Conversation: u.converses(nil, "a"), Reward: &value, At: at})
		require.NoError(t, err)
	}
	require.Equal(t, 2, u.chooses(1).Replies)
	require.Contains(t, u.chooses(2).Reason, "0 judged replies")
}
