package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestAConversationHasTheMeanOfItsValues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1), servedAt(2))
		put(t, s,
			record.Feedback{Run: "demo", ID: "a", Conversation: 0, CallID: "chatcmpl-0", Reward: number(-0.5), Thumb: record.ThumbUp, At: noon},
			record.Feedback{Run: "demo", ID: "b", Conversation: 0, Thumb: record.ThumbUp, At: noon},
			record.Feedback{Run: "demo", ID: "c", Conversation: 0, Thumb: record.ThumbDown, At: noon},
			record.Feedback{Run: "demo", ID: "d", Conversation: 0, Comment: "no value", At: noon},
			record.Feedback{Run: "demo", ID: "e", Conversation: 1, Labels: []string{"rude"}, At: noon},
		)
		all, err := s.Conversations(t.Context(), record.ConversationQuery{Run: "demo"})
		require.NoError(t, err)
		require.Len(t, all, 3)
		none, one, judged := all[0], all[1], all[2]
		require.InDelta(t, -0.5/3, *judged.Value, 1e-12, "a reward wins over the thumb beside it")
		require.Equal(t, 3, judged.Values)
		require.Equal(t, 4, judged.Feedback)
		require.Nil(t, one.Value)
		require.Equal(t, 1, one.Feedback)
		require.Zero(t, one.Values)
		require.Nil(t, none.Value)
	})
}

func TestLabelsOfConversationsAreListedOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1), servedAt(2))
		for i, labels := range [][]string{{"rude", "long"}, {"rude"}, nil, {`a "b"`, "long"}} {
			put(t, s, record.Feedback{Run: "demo", ID: fmt.Sprint(i), Conversation: i / 3, Labels: labels, Comment: "x", At: noon})
		}
		got, err := s.FeedbackLabels(t.Context(), "demo", []int{0, 1, 2})
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(map[int][]string{0: {"long", "rude"}, 1: {`a "b"`, "long"}}, got))
		got, err = s.FeedbackLabels(t.Context(), "demo", []int{1})
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(map[int][]string{1: {`a "b"`, "long"}}, got))
		got, err = s.FeedbackLabels(t.Context(), "demo", nil)
		require.NoError(t, err)
		require.Empty(t, got)
	})
}

func TestTheLatestFeedbackOfEachReplyIsFound(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		for i := range 5 {
			put(t, s,
				record.Feedback{Run: "demo", ID: fmt.Sprint("reply-", i), Conversation: 0, CallID: "chatcmpl-0", Comment: "of the reply", At: noon.Add(time.Duration(5-i) * time.Minute)},
				record.Feedback{Run: "demo", ID: fmt.Sprint("other-", i), Conversation: 0, CallID: "elsewhere", Comment: "of another", At: noon},
				record.Feedback{Run: "demo", ID: fmt.Sprint("whole-", i), Conversation: i % 2, Comment: "of all", At: noon},
			)
		}
		ids := func(all []record.Feedback) (out []string) {
			for _, f := range all {
				out = append(out, f.ID)
			}
			return out
		}
		got, counts, err := s.LatestFeedback(t.Context(), "demo", 0, []string{"", "chatcmpl-0"}, 2)
		require.NoError(t, err)
		require.Equal(t, []string{"whole-2", "whole-4", "reply-1", "reply-0"}, ids(got), "the newest of each, in order; of equal times the greater ids")
		require.Equal(t, map[string]int{"": 3, "chatcmpl-0": 5}, counts)
		got, counts, err = s.LatestFeedback(t.Context(), "demo", 0, []string{"nothing"}, 2)
		require.NoError(t, err)
		require.Empty(t, got)
		require.Empty(t, counts)
		all, err := s.Feedback(t.Context(), "demo", 0)
		require.NoError(t, err)
		got, _, err = s.LatestFeedback(t.Context(), "demo", 0, []string{"", "chatcmpl-0", "elsewhere"}, 99)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(all, got, cmpopts.EquateEmpty()), "all of it is what Feedback returns")
	})
}

func TestSegmentsAndExperimentsAreReadInParts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		endedRun(t, s, "demo")
		converse(t, s, servedAt(0), servedAt(1))
		for step := 1; step <= 5; step++ {
			id := fmt.Sprint(step)
			put(t, s, record.Feedback{Run: "demo", ID: id, Conversation: 0, Thumb: record.ThumbUp, At: noon})
			_, _, err := s.PutSegment(ctx, record.Segment{Run: "demo", Policy: "main", Step: step, Objective: "reward", Feedback: []string{id}, Conversations: []int{0}, Calls: []int{1}, At: noon})
			require.NoError(t, err)
			e := anExperiment()
			e.Candidate, e.Control = 10+step, step
			_, _, err = s.BeginExperiment(ctx, e)
			require.NoError(t, err)
			require.NoError(t, s.EndExperiment(ctx, ending(e, record.ExperimentEnded, "enough", nil)))
		}
		steps := func(before, most int) (out []int) {
			all, err := s.SegmentsBefore(ctx, "demo", "main", before, most)
			require.NoError(t, err)
			for _, one := range all {
				out = append(out, one.Step)
			}
			return out
		}
		require.Equal(t, []int{5, 4, 3, 2, 1}, steps(0, 9))
		require.Equal(t, []int{5, 4}, steps(0, 2))
		require.Equal(t, []int{3, 2}, steps(4, 2))
		require.Empty(t, steps(1, 2))
		candidates := func(before, most int) (out []int) {
			all, err := s.ExperimentsBefore(ctx, "demo", "main", before, most)
			require.NoError(t, err)
			for _, one := range all {
				out = append(out, one.Candidate)
			}
			return out
		}
		require.Equal(t, []int{15, 14, 13, 12, 11}, candidates(0, 9))
		require.Equal(t, []int{13, 12}, candidates(14, 2))
		require.Empty(t, candidates(11, 2))
	})
}
