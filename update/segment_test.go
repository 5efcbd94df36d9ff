package update_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// talk makes conversations with replies of known tokens.
type talk struct{ codec dialog.Codec }

func newTalk(t *testing.T) talk {
	codec, err := dialog.Named("compact")
	require.NoError(t, err)
	return talk{codec}
}

// reply returns a reply with a text to a prompt.
func (k talk) reply(t *testing.T, id, prompt, text string) record.Call {
	t.Helper()
	ids, err := k.codec.Prompt([]dialog.Message{{Role: dialog.User, Content: prompt}}, nil)
	require.NoError(t, err)
	completion := append(k.codec.Encode(text), k.codec.Stop()[0])
	return record.Call{
		ID: id, Policy: model.DefaultPolicy, Prompt: ids, Parent: -1, Completion: completion, Logprobs: make([]float32, len(completion)), Temperature: 1, Finish: "stop",
	}
}

// conversation returns a conversation of separate replies.
func conversation(number int, calls []record.Call, feedback ...record.Feedback) update.Conversation {
	for i := range calls {
		calls[i].Address, calls[i].Seq = record.ConversationAddress("live", number), i
	}
	for i := range feedback {
		feedback[i].Run, feedback[i].Conversation = "live", number
		if feedback[i].ID == "" {
			feedback[i].ID = fmt.Sprintf("f%d-%d", number, i)
		}
	}
	return update.Conversation{Conversation: record.Conversation{Run: "live", Number: number}, Calls: calls, Feedback: feedback}
}

func value(v float64) *float64 { return &v }

func text(s string) *string { return &s }

// batchOf makes the batch of a segment, and requires that it is a sound one.
func batchOf(t *testing.T, k talk, all []update.Conversation, r update.Replies) model.Batch {
	t.Helper()
	made, err := update.NewSegmentBatch(model.Batch{Policy: model.DefaultPolicy, Step: 1, VocabSize: k.codec.VocabSize()}, all, r)
	require.NoError(t, err)
	require.NoError(t, made.Batch.Check())
	require.InDelta(t, float64(r.Count()), made.Metrics["batch/replies"], 0)
	return made.Batch
}

func TestARepliesAdvantageIsItsValueLessTheMeanOfTheBatch(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	all := []update.Conversation{
		conversation(0, []record.Call{k.reply(t, "a", "1", "x"), k.reply(t, "b", "2", "y")},
			record.Feedback{CallID: "a", Thumb: record.ThumbUp}, record.Feedback{Reward: value(-0.5)}),
		conversation(3, []record.Call{k.reply(t, "c", "1", "z")}, record.Feedback{Reward: value(0.25)}, record.Feedback{Reward: value(0.75)}),
	}
	r := update.NewReplies(spec.ObjectiveReward, k.codec, 64, all, 10)
	require.Equal(t, 3, r.Count())
	require.Equal(t, []string{"f0-1", "f0-0", "f3-0", "f3-1"}, r.Used)
	require.Empty(t, r.LeftOut)
	b := batchOf(t, k, all, r)
	mean := (1 - 0.5 + 0.5) / 3
	require.Len(t, b.Rows, 3)
	for i, want := range []float64{1 - mean, -0.5 - mean, 0.5 - mean} {
		row := b.Rows[i]
		for j, sampled := range row.Sampled {
			if sampled {
				require.InDelta(t, want, float64(row.Advantages[j]), 1e-6, "row %d", i)
			}
		}
	}
	require.Equal(t, []model.BatchTrajectory{
		{Attempt: "live/served-0/0/0/1", Group: 0, Reward: 0.25, Advantage: 0.25 - mean, Trained: b.Trajectories[0].Trained},
		{Attempt: "live/served-0/3/0/1", Group: 1, Reward: 0.5, Advantage: 0.5 - mean, Trained: b.Trajectories[1].Trained},
	}, b.Trajectories)
}

func TestRepliesWhoseDistributionIsUnknownAreLeftOut(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	greedy, nucleus, whole, bare := k.reply(t, "a", "1", "x"), k.reply(t, "b", "1", "y"), k.reply(t, "c", "1", "z"), k.reply(t, "d", "1", "w")
	greedy.Temperature, nucleus.TopP, whole.TopP = 0, 0.9, 1
	bare.Prompt, bare.Completion, bare.Logprobs = nil, nil, nil
	var all []update.Conversation
	for i, call := range []record.Call{greedy, nucleus, whole, bare} {
		all = append(all, conversation(i, []record.Call{call}, record.Feedback{Reward: value(float64(i) / 4)}))
	}
	all = append(all, conversation(4, []record.Call{k.reply(t, "e", "1", "v")}, record.Feedback{Reward: value(1)}))
	all[4].Redacted = true
	r := update.NewReplies(spec.ObjectiveReward, k.codec, 64, all, 10)
	require.Equal(t, 1, r.Count())
	require.Equal(t, map[string]int{
		"sampled greedily or with top_p, so the sampling distribution can't be rebuilt": 2,
		"no tokens are on record":                    1,
		"the stored texts differ from what was said": 1,
	}, r.LeftOut)
	require.Len(t, r.Used, 5, "no later segment can use them either")
}

func TestEqualJudgementsTeachNothing(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	all := []update.Conversation{
		conversation(0, []record.Call{k.reply(t, "a", "1", "x")}, record.Feedback{Thumb: record.ThumbUp}),
		conversation(1, []record.Call{k.reply(t, "b", "1", "y")}, record.Feedback{Reward: value(1)}),
	}
	require.Contains(t, update.NewReplies(spec.ObjectiveReward, k.codec, 64, all, 10).Reason(), "all of them are judged 1")
	all[1].Feedback[0].Reward = value(0)
	require.Empty(t, update.NewReplies(spec.ObjectiveReward, k.codec, 64, all, 10).Reason())
}

func TestAReplyIsLearnedFromOnce(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	all := []update.Conversation{
		conversation(0, []record.Call{k.reply(t, "a", "1", "x")}, record.Feedback{Reward: value(1), Step: 2}, record.Feedback{Reward: value(0)}),
		conversation(1, []record.Call{k.reply(t, "b", "1", "y")}, record.Feedback{CallID: "b", CorrectedText: text("u"), Step: 2}, record.Feedback{CallID: "b", CorrectedText: text("w")}),
	}
	all[0].Learned = 1
	r := update.NewReplies(spec.ObjectiveReward, k.codec, 64, all[:1], 10)
	require.Zero(t, r.Count())
	require.Equal(t, map[string]int{"a segment has learned from the reply before": 1}, r.LeftOut)
	require.Equal(t, []string{"f0-1"}, r.Used)
	more := conversation(2, []record.Call{k.reply(t, "c", "1", "x"), k.reply(t, "d", "2", "y")},
		record.Feedback{CallID: "c", Reward: value(1), Step: 2}, record.Feedback{Reward: value(0)})
	r = update.NewReplies(spec.ObjectiveReward, k.codec, 64, []update.Conversation{more}, 10)
	require.Equal(t, 1, r.Count(), "what was said later is learned from")
	require.Equal(t, model.Row{Tokens: append(more.Calls[1].Prompt, more.Calls[1].Completion...), Temperature: 1}, batchOf(t, k, []update.Conversation{more}, r).Rows[0].Row)
	r = update.NewReplies(spec.ObjectiveSupervised, k.codec, 64, all[1:], 10)
	require.Zero(t, r.Count())
	require.Equal(t, map[string]int{"a segment has learned from the reply before": 1}, r.LeftOut)
}

func TestTheLastCorrectedTextOfAReplyIsLearned(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	call := k.reply(t, "a", "1", "x")
	all := []update.Conversation{conversation(0, []record.Call{call, k.reply(t, "b", "2", "y")},
		record.Feedback{CallID: "a", CorrectedText: text("old")}, record.Feedback{CallID: "a", CorrectedText: text("new")},
		record.Feedback{CallID: "b", CorrectedText: text("y")}, record.Feedback{CallID: "b", Thumb: record.ThumbUp},
		record.Feedback{CallID: "gone", CorrectedText: text("z")})}
	r := update.NewReplies(spec.ObjectiveSupervised, k.codec, 64, all, 10)
	require.Equal(t, 1, r.Count())
	require.Equal(t, map[string]int{
		"a segment has learned from the reply before": 1, "the corrected text is what the reply said": 1,
		"of another kind than the objective learns from": 1, "the reply is not on record": 1,
	}, r.LeftOut)
	require.NotContains(t, r.Used, "f0-4", "the reply may still be recorded")
	b := batchOf(t, k, all, r)
	require.Equal(t, model.Supervised, b.Objective())
	want := append(append(append([]int32{}, call.Prompt...), k.codec.Encode("new")...), k.codec.Stop()[0])
	require.Equal(t, want, b.Rows[0].Tokens)
	require.Equal(t, len(k.codec.Encode("new"))+1, b.Rows[0].Trained())
}

func TestPairsAreOfOnePrompt(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	all := []update.Conversation{
		conversation(0, []record.Call{k.reply(t, "a", "1", "x"), k.reply(t, "b", "1", "y"), k.reply(t, "c", "2", "y")},
			record.Feedback{CallID: "b", PreferredOver: "a"}, record.Feedback{CallID: "b", PreferredOver: "c"}, record.Feedback{CallID: "c", CorrectedText: text("better")}),
		conversation(1, []record.Call{k.reply(t, "d", "3", "x"), k.reply(t, "e", "3", "y")},
			record.Feedback{CallID: "d", Thumb: record.ThumbDown}, record.Feedback{CallID: "e", Thumb: record.ThumbUp}),
		conversation(2, []record.Call{k.reply(t, "f", "4", "x")}, record.Feedback{CallID: "f", Thumb: record.ThumbUp}),
		conversation(3, []record.Call{k.reply(t, "g", "3", "z")}, record.Feedback{CallID: "g", Thumb: record.ThumbUp}),
	}
	r := update.NewReplies(spec.ObjectivePreference, k.codec, 64, all, 10)
	require.Equal(t, 3, r.Count())
	require.Equal(t, map[string]int{
		"the replies of a pair answer different prompts": 1, "no reply of the other kind to the same request so far": 2,
	}, r.LeftOut)
	b := batchOf(t, k, all, r)
	require.Equal(t, model.Preference, b.Objective())
	said := func(row model.BatchRow) string {
		var out []int32
		for i, sampled := range row.Sampled {
			if sampled {
				out = append(out, row.Tokens[i])
			}
		}
		return k.codec.Text(out[:len(out)-1])
	}
	var pairs []string
	for i := 0; i < len(b.Rows); i += 2 {
		require.True(t, b.Rows[i].Chosen)
		pairs = append(pairs, said(b.Rows[i])+">"+said(b.Rows[i+1]))
	}
	require.Equal(t, []string{"y>x", "better>y", "y>x"}, pairs)
	require.Equal(t, "live/served-0/1/0/1", b.Trajectories[4].Attempt)
}

func TestASegmentTakesNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	var all []update.Conversation
	for i := range 5 {
		all = append(all, conversation(i, []record.Call{k.reply(t, fmt.Sprint("r", i), "1", fmt.Sprint(i))},
			record.Feedback{CallID: fmt.Sprint("r", i), Reward: value(float64(i) / 5), CorrectedText: text("new")}))
	}
	for _, objective := range []string{spec.ObjectiveReward, spec.ObjectiveSupervised, spec.ObjectivePreference} {
		r := update.NewReplies(objective, k.codec, 64, all, 2)
		require.Equal(t, 2, r.Count(), objective)
		require.Equal(t, []string{"f0-0", "f1-0"}, r.Used, objective)
		require.Equal(t, map[string]int{"more than one segment takes; the next one will": 3}, r.LeftOut, objective)
		rest := []update.Conversation{}
		for _, c := range all {
			c.Feedback = nil
			rest = append(rest, c)
		}
		require.Zero(t, update.NewReplies(objective, k.codec, 64, rest, 2).Count(), objective)
	}
}

func TestWhatIsLongerThanTheContextIsLeftOutForGood(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	all := []update.Conversation{conversation(0, []record.Call{k.reply(t, "a", "1", "x"), k.reply(t, "b", "1", "y")},
		record.Feedback{CallID: "a", CorrectedText: text("much longer than all that")}, record.Feedback{CallID: "b", CorrectedText: text("new")})}
	for _, objective := range []string{spec.ObjectiveSupervised, spec.ObjectivePreference} {
		r := update.NewReplies(objective, k.codec, 16, all, 10)
		require.Equal(t, 1, r.Count(), objective)
		require.Equal(t, map[string]int{"longer than the model's context": 1}, r.LeftOut, objective)
		require.Equal(t, []string{"f0-0", "f0-1"}, r.Used, objective)
	}
}

func TestAFullSegmentTakesOneMoreConversationIfNothingElseDiffers(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	var all []update.Conversation
	for i, v := range []float64{1, 1, 1, -1, -1} {
		all = append(all, conversation(i, []record.Call{k.reply(t, fmt.Sprint("r", i), "1", "x")}, record.Feedback{Reward: value(v)}))
	}
	r := update.NewReplies(spec.ObjectiveReward, k.codec, 64, all, 2)
	require.Equal(t, 3, r.Count())
	require.Empty(t, r.Reason())
	require.Equal(t, []string{"f0-0", "f1-0", "f3-0"}, r.Used)
}
