package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// Traffic keeps conversations with served versions, and what people say of them.
type Traffic interface {
	// UnusedFeedback returns feedback of some kinds that no segment has used, of conversations
	// whose last call was recorded before one time or after another: the newest, at most so
	// many, ordered by conversation, time and id.
	UnusedFeedback(ctx context.Context, run string, kinds []record.FeedbackKind, before, after time.Time, limit int) ([]record.Feedback, error)
	// Feedback returns all feedback of a conversation, ordered by time and id.
	Feedback(ctx context.Context, run string, conversation int) ([]record.Feedback, error)
	Conversation(ctx context.Context, run string, number int) (record.Conversation, error)
	// ServedReply finds a recorded reply of a conversation by its id.
	ServedReply(ctx context.Context, id string) (record.Conversation, record.Call, error)
	// PutSegment records a segment, and that it uses its feedback, unless one is recorded for
	// the step; it returns the one on record.
	PutSegment(ctx context.Context, s record.Segment) (stored record.Segment, created bool, err error)
	Segment(ctx context.Context, run, policy string, step int) (record.Segment, error)
	// Segments returns the segments of a run in the order of their steps.
	Segments(ctx context.Context, run, policy string) ([]record.Segment, error)
	// Version returns a version of the run.
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
}

// ChooseSegmentInput asks what a step learns from conversations.
type ChooseSegmentInput struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Step   int    `json:"step"`
}

// ChooseSegmentResult says what the step learns from. With a Reason there is not enough, and
// nothing was recorded.
type ChooseSegmentResult struct {
	Replies       int `json:"replies"`
	Conversations int `json:"conversations"`
	// LeftOut says how much feedback was left out, and why; empty if none was.
	LeftOut string `json:"left_out,omitempty"`
	// Parent is the version that learns from it.
	Parent int    `json:"parent"`
	Reason string `json:"reason,omitempty"`
}

func chosenSegment(s record.Segment) ChooseSegmentResult {
	return ChooseSegmentResult{Replies: s.Replies, Conversations: len(s.Conversations), LeftOut: leftOutText(s.LeftOut), Parent: s.Parent}
}

// SegmentBatchInput asks for the batch of a segment on record.
type SegmentBatchInput = ChooseSegmentInput

// SegmentBatchResult names the batch.
type SegmentBatchResult struct {
	Batch   string             `json:"batch"`
	Metrics map[string]float64 `json:"metrics"`
}

// feedbackWindow bounds the feedback that a choice reads, for each reply that a segment may
// have: one reply may have several.
const feedbackWindow = 8

// maxClockSkew is how far a clock may be ahead of another. A conversation whose last call is
// further in the future than this was recorded while a clock was wrong. It counts as ended:
// otherwise nothing would be learned from it until that time comes.
const maxClockSkew = time.Hour

// ChooseSegment chooses, once a step, what is learned from conversations that have ended. If
// there is too little, nothing is recorded, and the same feedback is looked at again the next
// time.
func (c *Coordinator) ChooseSegment(ctx context.Context, in ChooseSegmentInput) (_ ChooseSegmentResult, err error) {
	defer temporalError(&err)
	segment, err := c.Traffic.Segment(ctx, in.Run, in.Policy, in.Step)
	if err == nil {
		return chosenSegment(segment), nil
	}
	if !errors.Is(err, record.ErrNotFound) {
		return ChooseSegmentResult{}, fmt.Errorf("look for the segment of step %d: %w", in.Step, err)
	}
	_, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return ChooseSegmentResult{}, err
	}
	if !s.FromTraffic() {
		return ChooseSegmentResult{}, invalid(errors.New("traffic.train: missing: the run learns from tasks"))
	}
	train := s.Traffic.Train
	now := time.Now()
	before := now.Add(-time.Duration(s.Traffic.IdleMinutes * float64(time.Minute)))
	unused, err := c.Traffic.UnusedFeedback(ctx, in.Run, update.FeedbackKinds(train.Objective), before, now.Add(maxClockSkew), feedbackWindow*train.MaxReplies)
	if err != nil {
		return ChooseSegmentResult{}, fmt.Errorf("list the feedback of run %s: %w", in.Run, err)
	}
	conversations, err := c.conversations(ctx, in, unused)
	if err != nil {
		return ChooseSegmentResult{}, err
	}
	codec, err := c.Codecs.named(s.Model.Codec)
	if err != nil {
		return ChooseSegmentResult{}, err
	}
	promoted, err := c.Ledger.Promoted(ctx, in.Run, in.Policy)
	if err != nil {
		return ChooseSegmentResult{}, fmt.Errorf("find the promoted version of run %s: %w", in.Run, err)
	}
	positions, err := c.positions(ctx, in.Run, in.Policy, promoted.Version)
	if err != nil {
		return ChooseSegmentResult{}, err
	}
	replies := update.NewReplies(train.Objective, codec, positions, conversations, train.MaxReplies)
	out := ChooseSegmentResult{Replies: replies.Count(), Conversations: len(conversations), LeftOut: leftOutText(replies.LeftOut), Reason: replies.Reason()}
	if out.Replies < train.MinReplies {
		out.Reason = tooFew(*train, replies, len(unused))
	}
	if out.Reason != "" {
		return out, nil
	}
	segment = record.Segment{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Parent: promoted.Version, Objective: train.Objective, Feedback: replies.Used, Replies: out.Replies, LeftOut: replies.LeftOut,
	}
	for _, one := range conversations {
		segment.Conversations, segment.Calls = append(segment.Conversations, one.Number), append(segment.Calls, len(one.Calls))
	}
	segment, _, err = c.Traffic.PutSegment(ctx, segment)
	if errors.Is(err, record.ErrForgotten) { // the run goes on, and can be stopped
		out.Reason = err.Error()
		return out, nil
	}
	if err != nil {
		return ChooseSegmentResult{}, fmt.Errorf("record the segment of step %d: %w", in.Step, err)
	}
	return chosenSegment(segment), nil
}

// tooFew says why a segment has too few replies.
func tooFew(train spec.TrafficTraining, r update.Replies, feedback int) string {
	what := "judged reply"
	switch train.Objective {
	case spec.ObjectiveSupervised:
		what = "corrected reply"
	case spec.ObjectivePreference:
		what = "pair"
	}
	text := fmt.Sprintf("%s of the %d that traffic.train.min_replies asks for, from %s of conversations that have ended",
		readable.Count(r.Count(), what), train.MinReplies, readable.Count(feedback, "new judgment"))
	if left := leftOutText(r.LeftOut); left != "" {
		text += "; left out: " + left
	}
	return text
}

// leftOutText says how much feedback was left out, by reason.
func leftOutText(leftOut map[string]int) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(leftOut)) {
		parts = append(parts, fmt.Sprintf("%d %s", leftOut[why], why))
	}
	return strings.Join(parts, ", ")
}

// conversations reads the conversations of feedback, and those of the replies that it compares
// with, in the order of their numbers. Only the given feedback, and that of earlier segments, is
// that of a conversation: others may not have ended.
func (c *Coordinator) conversations(ctx context.Context, in ChooseSegmentInput, feedback []record.Feedback) ([]update.Conversation, error) {
	run := in.Run
	var numbers []int
	given := map[string]bool{}
	for _, f := range feedback {
		numbers = append(numbers, f.Conversation)
		given[f.ID] = true
		if f.PreferredOver == "" {
			continue
		}
		worse, _, err := c.Traffic.ServedReply(ctx, f.PreferredOver)
		switch {
		case errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrForgotten):
		case err != nil:
			return nil, fmt.Errorf("find reply %s: %w", f.PreferredOver, err)
		case worse.Run == run:
			numbers = append(numbers, worse.Number)
		}
	}
	slices.Sort(numbers)
	all, err := c.readConversations(ctx, in, slices.Compact(numbers))
	for i := range all {
		all[i].Feedback = slices.DeleteFunc(all[i].Feedback, func(f record.Feedback) bool { return f.Step == 0 && !given[f.ID] })
	}
	return all, err
}

// readConversations reads conversations with their calls and their feedback, for a step.
func (c *Coordinator) readConversations(ctx context.Context, in ChooseSegmentInput, numbers []int) ([]update.Conversation, error) {
	run := in.Run
	segments, err := c.Traffic.Segments(ctx, run, in.Policy)
	if err != nil {
		return nil, fmt.Errorf("list the segments of run %s: %w", run, err)
	}
	learned := map[int]int{}
	for _, s := range segments {
		if s.Step >= in.Step {
			continue
		}
		for i, n := range s.Conversations {
			learned[n] = max(learned[n], s.Calls[i])
		}
	}
	var addresses []record.Address
	var out []update.Conversation
	for _, n := range numbers {
		conversation, err := c.Traffic.Conversation(ctx, run, n)
		if errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrForgotten) {
			continue // it was removed
		}
		if err != nil {
			return nil, fmt.Errorf("read conversation %d of run %s: %w", n, run, err)
		}
		feedback, err := c.Traffic.Feedback(ctx, run, n)
		if err != nil {
			return nil, fmt.Errorf("read the feedback of conversation %d of run %s: %w", n, run, err)
		}
		out = append(out, update.Conversation{Conversation: conversation, Feedback: feedback, Learned: learned[n]})
		addresses = append(addresses, conversation.Address())
	}
	if len(addresses) == 0 {
		return nil, nil
	}
	trajectories, err := c.Attempts.Trajectories(ctx, addresses)
	if err != nil {
		return nil, fmt.Errorf("read the calls of conversations of run %s: %w", run, err)
	}
	for i := range out {
		out[i].Calls = trajectories[i].History
		out[i].Redacted = redacted(out[i].Calls)
	}
	return out, nil
}

// redacted reports whether texts of a conversation were rewritten by its last call of these: a
// call then lacks its tokens, also those of its prompt. The mark of the conversation says so of
// all its calls, also of those that came after the segment was chosen.
func redacted(calls []record.Call) bool {
	return slices.ContainsFunc(calls, func(call record.Call) bool { return len(call.Prompt) == 0 && len(call.Completion) == 0 })
}

// SegmentBatch makes the batch of a segment. The first recorded batch of a step counts.
func (c *Coordinator) SegmentBatch(ctx context.Context, in SegmentBatchInput) (_ SegmentBatchResult, err error) {
	defer temporalError(&err)
	recorded, err := c.Ledger.Batch(ctx, in.Run, in.Policy, in.Step)
	if err == nil {
		return SegmentBatchResult{Batch: recorded.Digest, Metrics: recorded.Metrics}, nil
	}
	if !errors.Is(err, record.ErrNotFound) {
		return SegmentBatchResult{}, fmt.Errorf("look for the batch of step %d: %w", in.Step, err)
	}
	began := time.Now()
	_, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return SegmentBatchResult{}, err
	}
	segment, err := c.Traffic.Segment(ctx, in.Run, in.Policy, in.Step)
	if err != nil {
		return SegmentBatchResult{}, fmt.Errorf("read the segment of step %d: %w", in.Step, err)
	}
	conversations, err := c.readConversations(ctx, in, segment.Conversations)
	if err != nil {
		return SegmentBatchResult{}, err
	}
	positions, err := c.positions(ctx, in.Run, in.Policy, segment.Parent)
	if err != nil {
		return SegmentBatchResult{}, err
	}
	codec, err := c.Codecs.named(s.Model.Codec)
	if err != nil {
		return SegmentBatchResult{}, err
	}
	for i := range conversations {
		asChosen(&conversations[i], segment)
	}
	replies := update.NewReplies(segment.Objective, codec, positions, conversations, max(1, segment.Replies))
	made, err := update.NewSegmentBatch(model.Batch{Policy: in.Policy, Step: in.Step, VocabSize: codec.VocabSize()}, conversations, replies)
	if err != nil {
		return SegmentBatchResult{}, invalid(fmt.Errorf("batch of step %d of %s: %w", in.Step, in.Run, err))
	}
	data, err := hf.EncodeBatch(made.Batch)
	if err != nil {
		return SegmentBatchResult{}, invalid(fmt.Errorf("batch of step %d of %s: %w", in.Step, in.Run, err))
	}
	digest, err := c.Blobs.Put(ctx, data)
	if err != nil {
		return SegmentBatchResult{}, fmt.Errorf("store the batch of step %d: %w", in.Step, err)
	}
	recorded, _, err = c.Ledger.PutBatch(ctx, record.Batch{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Digest: digest, Sequences: len(made.Batch.Rows),
		Tokens: int(made.Metrics["batch/tokens"]), Trained: made.Batch.Denominators.Tokens, Metrics: made.Metrics, Begun: began,
	})
	if err != nil {
		return SegmentBatchResult{}, fmt.Errorf("record the batch of step %d: %w", in.Step, err)
	}
	return SegmentBatchResult{Batch: recorded.Digest, Metrics: recorded.Metrics}, nil
}

// asChosen leaves of a conversation what there was when the segment was chosen: the calls of
// then, the feedback that the segment uses, and that of segments before it.
func asChosen(c *update.Conversation, s record.Segment) {
	if at := slices.Index(s.Conversations, c.Number); at >= 0 {
		c.Calls = c.Calls[:min(len(c.Calls), s.Calls[at])]
		c.Redacted = redacted(c.Calls)
	}
	used := map[string]bool{}
	for _, id := range s.Feedback {
		used[id] = true
	}
	c.Feedback = slices.DeleteFunc(c.Feedback, func(f record.Feedback) bool { return !used[f.ID] && (f.Step == 0 || f.Step >= s.Step) })
	for i := range c.Feedback {
		if used[c.Feedback[i].ID] {
			c.Feedback[i].Step = 0
		}
	}
}

// positions returns the number of positions of a version's model.
func (c *Coordinator) positions(ctx context.Context, run, policy string, number int) (int, error) {
	id := model.VersionID{Run: run, Policy: policy, Number: number}
	v, err := c.Traffic.Version(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("read version %s: %w", id, err)
	}
	text, err := c.Blobs.Get(ctx, v.Manifest)
	if err != nil {
		return 0, fmt.Errorf("read the manifest of %s: %w", id, err)
	}
	manifest, err := model.ParseManifest(text)
	if err != nil {
		return 0, invalid(fmt.Errorf("manifest of %s: %w", id, err))
	}
	return manifest.Architecture.MaxPositions, nil
}

// Segments asks the workflow of a run for a segment.
type Segments interface {
	// RequestSegment waits until the run has learned from what is new, or says why it does
	// not. The same id is one request. The error wraps record.ErrFenced if the run has ended.
	RequestSegment(ctx context.Context, run, id string) (RequestSegmentResult, error)
}

// RequestSegmentInput asks a run to learn from what is new.
type RequestSegmentInput struct {
	Run string `json:"run"`
	ID  string `json:"id"`
}

// RequestSegmentResult says what came of it. Step is 0 if nothing was learned.
type RequestSegmentResult struct {
	Step    int    `json:"step,omitempty"`
	Message string `json:"message"`
}

// RequestSegment asks the workflow of a run for a segment, and waits for it.
func (c *Coordinator) RequestSegment(ctx context.Context, in RequestSegmentInput) (_ RequestSegmentResult, err error) {
	defer temporalError(&err)
	run, err := c.Runs.Run(ctx, in.Run)
	end := shell.Command("schedule", "delete", in.Run)
	if err != nil {
		err = fmt.Errorf("read run %s: %w", in.Run, err)
		if errors.Is(err, record.ErrNotFound) || errors.Is(err, record.ErrForgotten) {
			err = update.Final(fmt.Errorf("%w; `%s` ends its schedule", err, end))
		}
		return RequestSegmentResult{}, err
	}
	if run.Status != record.Running {
		return RequestSegmentResult{}, update.Final(fmt.Errorf("run %s is %s and learns nothing more: `%s` lets it go on if it failed, and `%s` ends its schedule",
			in.Run, run.Status, shell.Command("retry", in.Run), end))
	}
	return c.Segments.RequestSegment(ctx, in.Run, cmp.Or(in.ID, in.Run))
}
