package update

import (
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Conversation is a recorded conversation with a served version, and what people say of it.
type Conversation struct {
	record.Conversation
	// Calls are the recorded calls that a segment may learn from, in order.
	Calls []record.Call
	// Learned is how many of the first calls earlier segments could learn from: what was said
	// then of the whole conversation was about these.
	Learned int
	// Feedback is what people say of the conversation and of its replies, in the order in
	// which it came. That with a Step was learned from by that segment.
	Feedback []record.Feedback
}

// Reasons why a segment leaves feedback out.
const (
	leftRedacted   = "the stored texts differ from what was said"
	leftTokens     = "no tokens are on record"
	leftSampling   = "sampled greedily or with top_p, so the sampling distribution can't be rebuilt"
	leftOther      = "of another kind than the objective learns from"
	leftLearned    = "a segment has learned from the reply before"
	leftPrompts    = "the replies of a pair answer different prompts"
	leftUnchanged  = "the corrected text is what the reply said"
	leftGone       = "the reply is not on record"
	leftUnmatched  = "no reply of the other kind to the same request so far"
	leftOverlimits = "more than one segment takes; the next one will"
	leftLong       = "longer than the model's context"
)

// Replies is what a segment learns from: judged replies, corrected ones, or pairs.
type Replies struct {
	judged    []judgedReply
	corrected []correctedReply
	pairs     []replyPair
	// Used lists the ids of the feedback that the segment uses up: it learns from them, or
	// never can.
	Used []string
	// LeftOut counts feedback that the segment does not learn from, by reason.
	LeftOut map[string]int

	positions int
}

type judgedReply struct {
	conversation, call int
	value              float64
}

type correctedReply struct {
	conversation int
	prompt, text []int32
	attempt      string
}

type replyPair struct {
	prompt, chosen, rejected []int32
	attempts                 [2]string // of the chosen and of the rejected reply
}

// Count returns how many replies, or pairs, there are.
func (r Replies) Count() int { return len(r.judged) + len(r.corrected) + len(r.pairs) }

// Reason says why nothing can be learned from the replies, although there may be many; it is
// empty if something can.
func (r Replies) Reason() string {
	if len(r.judged) == 0 {
		return ""
	}
	for _, j := range r.judged[1:] {
		if j.value != r.judged[0].value {
			return ""
		}
	}
	return fmt.Sprintf("all of them are judged %v, and only a difference can be learned from", r.judged[0].value)
}

// FeedbackKinds returns the kinds of feedback from which an objective learns.
func FeedbackKinds(objective string) []record.FeedbackKind {
	switch objective {
	case spec.ObjectiveReward:
		return []record.FeedbackKind{record.FeedbackValue}
	case spec.ObjectiveSupervised:
		return []record.FeedbackKind{record.FeedbackCorrection}
	case spec.ObjectivePreference:
		return []record.FeedbackKind{record.FeedbackCorrection, record.FeedbackPreference, record.FeedbackThumb}
	}
	return nil
}

// NewReplies finds what a segment of the spec's objective learns from. It takes at most
// limit replies or pairs, and none that is longer than the model's positions. Judged replies may
// exceed the limit by those of one conversation, if all others are judged the same. The
// conversations are in the order of their numbers; equal inputs give equal replies.
func NewReplies(objective string, codec dialog.Codec, positions int, conversations []Conversation, limit int) Replies {
	r := Replies{LeftOut: map[string]int{}, positions: positions}
	switch objective {
	case spec.ObjectiveReward:
		r.judge(conversations, limit)
	case spec.ObjectiveSupervised:
		r.correct(codec, conversations, limit)
	case spec.ObjectivePreference:
		r.pair(codec, conversations, limit)
	}
	return r
}

// leave counts feedback that the segment does not learn from. With forever, no later one can
// either.
func (r *Replies) leave(f record.Feedback, reason string, forever bool) {
	r.LeftOut[reason]++
	if forever {
		r.Used = append(r.Used, f.ID)
	}
}

// unusable returns why no weights can be trained on a call, "" if they can.
func unusable(c Conversation, call record.Call) string {
	switch {
	case c.Redacted:
		return leftRedacted
	case len(call.Prompt) == 0 || len(call.Completion) == 0:
		return leftTokens
	}
	return ""
}

// judge takes replies whose value differs from others: that of their own feedback, or else
// that of the whole conversation. Several values of one reply are averaged.
func (r *Replies) judge(conversations []Conversation, limit int) {
	for i, c := range conversations {
		learned := map[string]bool{} // by reply; "" stands for all
		for _, f := range c.Feedback {
			if _, ok := f.Value(); ok && f.Step != 0 {
				learned[f.CallID] = true
			}
		}
		byCall, whole := map[string]*average{}, &average{}
		for _, f := range c.Feedback {
			if f.Step != 0 {
				continue
			}
			value, ok := f.Value()
			switch {
			case !ok:
				r.leave(f, leftOther, true)
				continue
			case f.CallID == "":
				whole.add(f.ID, value)
				continue
			}
			at := slices.IndexFunc(c.Calls, func(call record.Call) bool { return call.ID == f.CallID })
			switch {
			case at < 0:
				r.leave(f, leftGone, false)
				continue
			case learned[f.CallID] || learned[""] && at < c.Learned:
				r.leave(f, leftLearned, true)
				continue
			}
			if byCall[f.CallID] == nil {
				byCall[f.CallID] = &average{}
			}
			byCall[f.CallID].add(f.ID, value)
		}
		r.judgeCalls(c, i, learned, byCall, whole, limit)
	}
}

// judgeCalls takes the replies of a conversation that no segment has learned from.
func (r *Replies) judgeCalls(c Conversation, index int, learned map[string]bool, byCall map[string]*average, whole *average, limit int) {
	taken := false
	reason := leftTokens
	var used []string
	var replies []judgedReply
	for k, call := range c.Calls {
		of := byCall[call.ID]
		if of == nil {
			of = whole
		}
		if of.count == 0 {
			continue
		}
		if learned[call.ID] || learned[""] && k < c.Learned {
			reason = leftLearned
			continue
		}
		if why := unusable(c, call); why != "" {
			reason = why
			continue
		}
		if call.Temperature <= 0 || call.TopP != 0 && call.TopP != 1 {
			reason = leftSampling
			continue
		}
		replies, taken = append(replies, judgedReply{index, k, of.mean()}), true
		used = append(used, of.ids...)
	}
	all := slices.Clone(whole.ids)
	for _, call := range c.Calls {
		if of := byCall[call.ID]; of != nil {
			all = append(all, of.ids...)
		}
	}
	full := len(r.judged) > 0 && len(r.judged)+len(replies) > limit
	if full && r.Reason() != "" && r.differs(replies) { // without it, nothing could be learned
		full = false
	}
	switch {
	case len(all) == 0:
	case taken && full:
		r.LeftOut[leftOverlimits] += len(all)
	case taken:
		r.judged = append(r.judged, replies...)
		r.Used = append(r.Used, all...)
		for _, id := range all {
			if !slices.Contains(used, id) {
				r.LeftOut[reason]++
			}
		}
	default:
		r.LeftOut[reason] += len(all)
		r.Used = append(r.Used, all...)
	}
}

// differs reports whether a reply is judged otherwise than the first one.
func (r *Replies) differs(replies []judgedReply) bool {
	return slices.ContainsFunc(replies, func(j judgedReply) bool { return j.value != r.judged[0].value })
}

// average is the mean of the values of some feedback.
type average struct {
	sum   float64
	count int
	ids   []string
}

func (a *average) add(id string, value float64) {
	a.sum, a.count, a.ids = a.sum+value, a.count+1, append(a.ids, id)
}

func (a *average) mean() float64 { return a.sum / float64(a.count) }

// correct takes replies for which somebody gave a better text. The last text of a reply
// counts.
func (r *Replies) correct(codec dialog.Codec, conversations []Conversation, limit int) {
	for i, c := range conversations {
		for k, f := range c.Feedback {
			switch {
			case f.Step != 0:
				continue
			case f.CorrectedText == nil:
				r.leave(f, leftOther, true)
				continue
			case slices.ContainsFunc(c.Feedback[k+1:], func(later record.Feedback) bool {
				return later.CorrectedText != nil && later.CallID == f.CallID && later.Step == 0
			}), slices.ContainsFunc(c.Feedback, func(other record.Feedback) bool {
				return other.CorrectedText != nil && other.CallID == f.CallID && other.Step != 0
			}):
				r.leave(f, leftLearned, true)
				continue
			}
			call, ok := callOf(c, f.CallID)
			if !ok {
				r.leave(f, leftGone, false)
				continue
			}
			if f.Redacted {
				r.leave(f, leftRedacted, true)
				continue
			}
			if why := unusable(c, call); why != "" {
				r.leave(f, why, true)
				continue
			}
			if len(r.corrected) >= limit {
				r.leave(f, leftOverlimits, false)
				continue
			}
			text := replyTokens(codec, call, *f.CorrectedText)
			if slices.Equal(text, call.Completion) {
				r.leave(f, leftUnchanged, true)
				continue
			}
			if len(call.Prompt)+len(text) > r.positions {
				r.leave(f, leftLong, true)
				continue
			}
			r.corrected = append(r.corrected, correctedReply{i, call.Prompt, text, c.Address().String()})
			r.Used = append(r.Used, f.ID)
		}
	}
}

// replyTokens returns the tokens of a reply with another text. It ends as the call's reply
// does, if that did not end at a limit.
func replyTokens(codec dialog.Codec, call record.Call, text string) []int32 {
	stops := codec.Stop()
	out := codec.Encode(text)
	if n := len(call.Completion); n > 0 && slices.Contains(stops, call.Completion[n-1]) {
		return append(out, call.Completion[n-1])
	}
	if len(stops) > 0 {
		out = append(out, stops[0])
	}
	return out
}

func callOf(c Conversation, id string) (record.Call, bool) {
	at := slices.IndexFunc(c.Calls, func(call record.Call) bool { return call.ID == id })
	if id == "" && len(c.Calls) > 0 { // of the whole conversation: its last reply
		at = len(c.Calls) - 1
	}
	if at < 0 {
		return record.Call{}, false
	}
	return c.Calls[at], true
}

// pair takes pairs of replies to the same prompt: one preferred over another, a corrected
// text over the reply, and a reply with a thumb up over one with a thumb down.
func (r *Replies) pair(codec dialog.Codec, conversations []Conversation, limit int) {
	thumbs := map[string]*thumbed{}
	var order []string
	for _, c := range conversations {
		for _, f := range c.Feedback {
			if f.Step != 0 {
				continue
			}
			call, ok := callOf(c, f.CallID)
			why := leftGone
			if ok {
				why = unusable(c, call)
			}
			if ok && f.CorrectedText != nil && f.Redacted {
				why = leftRedacted
			}
			if why != "" {
				r.leave(f, why, ok)
				continue
			}
			at := c.Address().String()
			switch {
			case f.CorrectedText != nil:
				chosen := replyTokens(codec, call, *f.CorrectedText)
				if slices.Equal(chosen, call.Completion) {
					r.leave(f, leftUnchanged, true)
					continue
				}
				if len(call.Prompt)+len(chosen) > r.positions {
					r.leave(f, leftLong, true)
					continue
				}
				r.addPair(limit, replyPair{call.Prompt, chosen, call.Completion, [2]string{at, at}}, f)
			case f.PreferredOver != "":
				worse, where, ok := findReply(conversations, f.PreferredOver)
				switch {
				case !ok:
					r.leave(f, leftGone, false)
				case !slices.Equal(worse.Prompt, call.Prompt):
					r.leave(f, leftPrompts, true)
				case slices.Equal(worse.Completion, call.Completion):
					r.leave(f, leftUnchanged, true)
				default:
					r.addPair(limit, replyPair{call.Prompt, call.Completion, worse.Completion, [2]string{at, where}}, f)
				}
			case f.Thumb != "" && f.CallID != "":
				key := fmt.Sprint(call.Prompt)
				if thumbs[key] == nil {
					thumbs[key] = &thumbed{}
					order = append(order, key)
				}
				thumbs[key].add(f, call, at)
			default:
				r.leave(f, leftOther, true)
			}
		}
	}
	for _, key := range order {
		r.pairThumbs(limit, *thumbs[key])
	}
}

// thumbed are the replies to one prompt that have thumbs.
type thumbed struct{ up, down []thumbedReply }

type thumbedReply struct {
	feedback record.Feedback
	call     record.Call
	attempt  string
}

func (t *thumbed) add(f record.Feedback, call record.Call, attempt string) {
	if one := (thumbedReply{f, call, attempt}); f.Thumb == record.ThumbUp {
		t.up = append(t.up, one)
	} else {
		t.down = append(t.down, one)
	}
}

// pairThumbs makes a pair of the first up and the first down, and so on. Of a longer list
// the rest waits for replies of the other kind.
func (r *Replies) pairThumbs(limit int, t thumbed) {
	n := min(len(t.up), len(t.down))
	for i := range n {
		up, down := t.up[i], t.down[i]
		if slices.Equal(up.call.Completion, down.call.Completion) {
			r.leave(up.feedback, leftUnchanged, true)
			r.leave(down.feedback, leftUnchanged, true)
			continue
		}
		r.addPair(limit, replyPair{up.call.Prompt, up.call.Completion, down.call.Completion, [2]string{up.attempt, down.attempt}}, up.feedback, down.feedback)
	}
	for _, rest := range slices.Concat(t.up[n:], t.down[n:]) {
		r.leave(rest.feedback, leftUnmatched, false)
	}
}

func (r *Replies) addPair(limit int, p replyPair, of ...record.Feedback) {
	for _, f := range of {
		if len(r.pairs) >= limit {
			r.leave(f, leftOverlimits, false)
		} else {
			r.Used = append(r.Used, f.ID)
		}
	}
	if len(r.pairs) < limit {
		r.pairs = append(r.pairs, p)
	}
}

// findReply finds a reply among conversations.
func findReply(conversations []Conversation, id string) (call record.Call, attempt string, ok bool) {
	for _, c := range conversations {
		for _, call := range c.Calls {
			if call.ID == id && unusable(c, call) == "" {
				return call, c.Address().String(), true
			}
		}
	}
	return record.Call{}, "", false
}

// NewSegmentBatch makes the batch of a segment. b has the batch's policy, number and
// vocabulary. Judged replies are trained by policy gradient: the advantage of each token of a
// reply is its value less the mean over all replies of the batch (REINFORCE with a baseline,
// Williams 1992). Corrected texts and pairs are rows of their own objectives.
func NewSegmentBatch(b model.Batch, conversations []Conversation, r Replies) (Credited, error) {
	switch {
	case len(r.judged) > 0:
		if err := addJudged(&b, conversations, r.judged); err != nil {
			return Credited{}, err
		}
	case len(r.corrected) > 0:
		for i, c := range r.corrected {
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: c.attempt, Group: i})
			b.Rows = append(b.Rows, model.SupervisedRow(c.prompt, c.text, i))
		}
	default:
		for i, p := range r.pairs {
			for _, attempt := range p.attempts {
				b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: attempt, Group: i})
			}
			two := model.PreferenceRows(p.prompt, p.chosen, p.rejected, i, 2*i, 2*i+1)
			b.Rows = append(b.Rows, two[:]...)
		}
	}
	b.Count()
	metrics := map[string]float64{
		"batch/tokens": 0, "batch/sequences": float64(len(b.Rows)), "batch/trained_tokens": float64(b.Denominators.Tokens),
		"batch/replies": float64(r.Count()), "batch/rollouts": float64(len(b.Trajectories)),
	}
	if len(r.judged) > 0 {
		metrics["reward/mean"] = r.value()
	}
	for _, row := range b.Rows {
		metrics["batch/tokens"] += float64(len(row.Tokens))
	}
	return Credited{Batch: b, Metrics: metrics}, nil
}

// value returns the mean value of the judged replies; 0 without any.
func (r Replies) value() float64 {
	sum := 0.0
	for _, j := range r.judged {
		sum += j.value
	}
	return sum / math.Max(1, float64(len(r.judged)))
}

// addJudged adds the rows of judged replies, a trajectory a conversation.
func addJudged(b *model.Batch, conversations []Conversation, judged []judgedReply) error {
	mean := Replies{judged: judged}.value()
	for len(judged) > 0 {
		i := judged[0].conversation
		c := conversations[i]
		given := shares{calls: make([]float64, len(c.Calls)), skip: slices.Repeat([]bool{true}, len(c.Calls))}
		sum, n := 0.0, 0
		for ; n < len(judged) && judged[n].conversation == i; n++ {
			given.calls[judged[n].call], given.skip[judged[n].call] = judged[n].value-mean, false
			sum += judged[n].value
		}
		judged = judged[n:]
		value := sum / float64(n)
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{
			Attempt: c.Address().String(), Group: len(b.Trajectories), Reward: value, Advantage: value - mean,
		})
		sequences, err := rows(record.Trajectory{Attempt: record.Attempt{Address: c.Address()}, History: c.Calls}, len(b.Trajectories)-1, given)
		if err != nil {
			return fmt.Errorf("conversation %s: %w", c.Address(), err)
		}
		for k := range sequences {
			sequences[k].Policy = ""
		}
		b.Rows = append(b.Rows, sequences...)
	}
	return nil
}
