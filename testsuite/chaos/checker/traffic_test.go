package checker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// trafficEvidence returns the evidence of a sound run with two segments. Client ada consents
// and has two conversations, and client ben, who does not, has one.
func trafficEvidence() checker.TrafficEvidence {
	e := checker.TrafficEvidence{Completed: true, Batches: map[int]checker.SegmentBatch{}}
	e.Records = checker.TrafficRecords{Run: "run", Status: "stopped", Batches: map[int]string{}}
	start := time.Unix(1000, 0)
	e.Records.Promotions = []checker.Promotion{{Version: 0, At: start}, {Version: 1, At: start.Add(time.Minute)}}
	e.Records.Decisions = []checker.Decision{{Candidate: 2, Verdict: "refused"}}
	e.Records.Versions = []checker.TrafficVersion{{Parent: -1, Version: checker.Version{Weights: "sha256:a0"}}}
	for n := range 2 {
		e.Records.Conversations = append(e.Records.Conversations, checker.TrafficConversation{Number: n, Client: "ada"})
		segment := checker.Segment{Step: n + 1, Parent: n, Conversations: []int{n}, Calls: []int{2}, Replies: 2, At: start.Add(time.Duration(10+60*n) * time.Second)}
		e.Batches[n+1] = checker.SegmentBatch{Sampled: map[int][]int32{}}
		for turn := range 2 {
			text, id, reward := fmt.Sprintf("(%d/%d)", n, turn), fmt.Sprintf("reply-%d-%d", n, turn), 0.5
			seed, tokens := uint64(1000+10*n+turn), []int32{int32(n), int32(turn)}
			body, _ := json.Marshal(map[string]any{"id": id, "choices": []any{map[string]any{"message": map[string]any{"content": "yes"}}}})
			call := checker.ServedCall{ID: id, Key: text, Request: text, Response: string(body)}
			call.Call = checker.Call{RolloutAddress: checker.RolloutAddress{Kind: "served", Task: n}, Attempt: 1, Seq: turn, Weights: "sha256:a0", Seed: seed, Tokens: tokens, Recorded: start}
			e.Records.Calls = append(e.Records.Calls, call)
			e.Generations = append(e.Generations, checker.Generation{ID: id, Run: "run", Seed: seed, Tokens: tokens, Weights: "a0", Started: start.Add(-time.Second)})
			request := checker.ServedRequest{Client: "ada", Dialog: n, Turn: turn, Text: text, User: "ann@example.org", Consents: true, Reply: checker.ServedReply{ID: id, Content: "yes"}}
			given := checker.GivenFeedback{Client: "ada", ID: "on-" + id, Reply: id, Reward: reward, Statuses: []int{http.StatusCreated}}
			if turn == 1 {
				request.Again = []checker.ServedReply{request.Reply}
				given.Statuses = []int{http.StatusCreated, http.StatusOK}
			}
			e.Requests, e.Feedback = append(e.Requests, request), append(e.Feedback, given)
			e.Records.Feedback = append(e.Records.Feedback, checker.FeedbackRow{ID: "ada/on-" + id, Conversation: n, Reply: id, Reward: &reward, Client: "ada", Step: n + 1})
			segment.Feedback = append(segment.Feedback, "ada/on-"+id)
			e.Batches[n+1].Sampled[n] = append(e.Batches[n+1].Sampled[n], tokens...)
		}
		e.Records.Segments = append(e.Records.Segments, segment)
		e.Records.Batches[n+1] = fmt.Sprint("sha256:b", n+1)
		e.Records.Versions = append(e.Records.Versions, checker.TrafficVersion{Parent: n, Version: checker.Version{Number: n + 1, Weights: fmt.Sprint("sha256:a", n+1), Batch: e.Records.Batches[n+1]}})
	}
	e.Requests = append(e.Requests, checker.ServedRequest{Client: "ben", Dialog: 7, Text: "(7/0)", Reply: checker.ServedReply{ID: "unrecorded", Content: "no"}}, checker.ServedRequest{Client: "ada", Dialog: 8, Text: "(8/0)", Consents: true})
	e.Feedback = append(e.Feedback,
		checker.GivenFeedback{Client: "ben", ID: "on-7-0", Reply: "unrecorded", Reward: 1, Want: http.StatusNotFound, Statuses: []int{http.StatusNotFound}},
		checker.GivenFeedback{Client: "ada", ID: "on-reply-0-0", Reply: "reply-0-0", Reward: -0.5, Want: http.StatusConflict, Statuses: []int{http.StatusConflict}})
	return e
}

func TestTrafficThatIsSoundIsFoundToBe(t *testing.T) {
	t.Parallel()
	f := checker.CheckTraffic(trafficEvidence())
	require.Empty(t, f.Wrong)
	require.Empty(t, f.Repeated)
	require.True(t, f.Completed)
	require.Equal(t, &checker.TrafficFindings{
		Requests: 6, Replies: 4, Unrecorded: 1, SentAgain: 2, Accepted: 4, Known: 2, Refused: 2, Used: 4, Segments: 2,
	}, f.Traffic)
}

func TestEverythingThatCanBeWrongWithTrafficIsNoticed(t *testing.T) {
	t.Parallel()
	unnoticed, err := checker.UnnoticedTraffic(trafficEvidence())
	require.NoError(t, err)
	require.Empty(t, unnoticed)
}

// The second reply of an earlier segment is judged again, which is used up and not learned.
func TestAReplyIsLearnedFromOnce(t *testing.T) {
	t.Parallel()
	e, reward := trafficEvidence(), 1.0
	e.Feedback = append(e.Feedback, checker.GivenFeedback{Client: "ada", ID: "later", Reply: "reply-0-1", Reward: reward, Statuses: []int{http.StatusCreated}})
	e.Records.Feedback = append(e.Records.Feedback, checker.FeedbackRow{ID: "ada/later", Reply: "reply-0-1", Reward: &reward, Client: "ada", Step: 2})
	s := &e.Records.Segments[1]
	s.Feedback, s.Conversations, s.Calls = append(s.Feedback, "ada/later"), []int{0, 1}, []int{2, 2}
	require.Empty(t, checker.CheckTraffic(e).Wrong)
	e.Batches[2].Sampled[0] = []int32{0, 1}
	require.Contains(t, checker.CheckTraffic(e).Wrong[0], "the batch of segment 2 has 2 sampled tokens of conversation 0")
}

// Feedback on a whole conversation is about all that was said until its segment was chosen, and
// another piece about what was said since.
func TestAWholeConversationIsJudged(t *testing.T) {
	t.Parallel()
	e, reward := trafficEvidence(), 0.5
	for i, n := range []int{1, 2} { // segment 1 has one call of conversation 0, segment 2 the other
		id := fmt.Sprint("whole-", n)
		e.Feedback = append(e.Feedback, checker.GivenFeedback{Client: "ada", ID: id, Conversation: "c", Reward: reward, Statuses: []int{http.StatusCreated}})
		e.Records.Feedback = append(e.Records.Feedback, checker.FeedbackRow{ID: "ada/" + id, Reward: &reward, Client: "ada", Step: n})
		e.Records.Segments[i].Feedback = append(e.Records.Segments[i].Feedback, "ada/"+id)
	}
	// What was said of its replies is of no segment.
	e.Records.Feedback[0].Step, e.Records.Feedback[1].Step = 0, 0
	first, second := &e.Records.Segments[0], &e.Records.Segments[1]
	first.Feedback, first.Calls, first.Replies = first.Feedback[2:], []int{1}, 1
	second.Conversations, second.Calls, second.Replies = []int{0, 1}, []int{2, 2}, 3
	e.Batches[1].Sampled[0], e.Batches[2].Sampled[0] = []int32{0, 0}, []int32{0, 1}
	require.Empty(t, checker.CheckTraffic(e).Wrong)
	e.Batches[2].Sampled[0] = []int32{0, 0, 0, 1}
	require.Contains(t, checker.CheckTraffic(e).Wrong[0], "the batch of segment 2 has 4 sampled tokens of conversation 0")
	e.Batches[2].Sampled[0] = []int32{0, 1}
	e.Feedback[len(e.Feedback)-1].Dialog = 1
	require.Contains(t, checker.CheckTraffic(e).Wrong[0], "feedback ada/whole-2 says 0.5 of 1")
}

func TestTheBatchOfASegmentIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	b := model.Batch{Policy: model.DefaultPolicy, Step: 1, VocabSize: 40}
	for i, n := range []int{4, 9} {
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: fmt.Sprintf("run/served-0/%d/0/1", n), Group: i})
		b.Rows = append(b.Rows, model.BatchRow{
			Row:     model.Row{Tokens: []int32{1, 2, int32(10 + i), 3, 4}, Temperature: 1},
			Sampled: []bool{false, false, true, false, true}, Logprobs: make([]float32, 5), Advantages: make([]float32, 5), Calls: []int32{-1, -1, 0, -1, 1}, Trajectory: i,
		})
	}
	b.Count()
	data, err := hf.EncodeBatch(b)
	require.NoError(t, err)
	dir := t.TempDir()
	blobs, err := blob.Open(dir)
	require.NoError(t, err)
	digest, err := blobs.Put(t.Context(), data)
	require.NoError(t, err)
	got, err := checker.ReadSegmentBatch(dir, digest)
	require.NoError(t, err)
	require.Equal(t, map[int][]int32{4: {10, 4}, 9: {11, 4}}, got.Sampled)
	_, err = checker.ReadSegmentBatch(dir, "sha256:00")
	require.ErrorContains(t, err, "read batch sha256:00: no digest")
	require.NoError(t, os.RemoveAll(dir))
	_, err = checker.ReadSegmentBatch(dir, digest)
	require.ErrorContains(t, err, "no such file")
}
