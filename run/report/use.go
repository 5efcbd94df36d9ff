package report

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Use is the account of a run that learns from conversations with its versions.
type Use struct {
	Segments int `json:"segments"`
	// Replies is how many replies, or pairs, were learned from, and Conversations in how many
	// conversations of segments they are.
	Replies       int `json:"replies"`
	Conversations int `json:"conversations"`
	// Feedback is how much feedback the segments used up.
	Feedback int `json:"feedback"`
	// LeftOut counts feedback that segments did not learn from, by reason.
	LeftOut map[string]int `json:"left_out,omitempty"`
	// Shadows are those of candidates about which is decided, the newest first.
	Shadows []UsedShadow `json:"shadows,omitempty"`

	pairs bool
}

// UsedShadow is how a candidate replied to prompts on record before it was decided about.
type UsedShadow struct {
	Candidate int `json:"candidate"`
	model.Shadow
}

// useLedger compares segments with the batches that were made of them.
type useLedger struct {
	*ledger
	segments map[int]record.Segment // by step
	replies  map[record.Address]map[int32]int
	use      Use
}

// accountForUse compares what the segments of finished steps hold with what was trained.
func (r *Report) accountForUse(ctx context.Context, m records, blobs Blobs) error {
	l := &useLedger{ledger: newLedger(m), segments: map[int]record.Segment{}, replies: map[record.Address]map[int32]int{}}
	l.use.LeftOut = map[string]int{}
	l.use.pairs = m.spec.Traffic.Train.Objective == spec.ObjectivePreference
	used := map[string]int{} // feedback, by the step that used it
	for _, s := range m.segments {
		l.segments[s.Step] = s
		l.use.Segments++
		l.use.Replies += s.Replies
		l.use.Conversations += len(s.Conversations)
		l.use.Feedback += len(s.Feedback)
		for why, n := range s.LeftOut {
			l.use.LeftOut[why] += n
		}
		for _, id := range s.Feedback {
			if before, ok := used[id]; ok {
				l.fault("feedback %s is used in steps %d and %d", id, before, s.Step)
			}
			used[id] = s.Step
		}
	}
	for i, s := range m.steps {
		if s.Step != i+1 {
			l.fault("step %d is not on record, although step %d is finished", i+1, s.Step)
			break
		}
	}
	for _, s := range m.steps {
		batch, ok, err := l.batchOf(ctx, blobs, s)
		if err != nil {
			return err
		}
		if ok {
			l.compare(s.Step, batch)
		}
	}
	l.use.Shadows = shadowsOf(m)
	r.Use, r.Warning = &l.use, record.UntaughtBy(m.steps).Text()
	r.Faults = append(r.Faults, l.faults...)
	return nil
}

// shadowsOf returns the shadows in the evidence of decisions.
func shadowsOf(m records) []UsedShadow {
	var out []UsedShadow
	add := func(evidence json.RawMessage) {
		var d model.Decision
		if json.Unmarshal(evidence, &d) == nil && d.Shadow != nil { // moves by people have other evidence
			out = append(out, UsedShadow{d.Candidate, *d.Shadow})
		}
	}
	for _, p := range m.promotions {
		add(p.Evidence)
	}
	for _, d := range m.decisions {
		add(d.Evidence)
	}
	slices.SortFunc(out, func(a, b UsedShadow) int { return cmp.Compare(b.Candidate, a.Candidate) })
	return slices.CompactFunc(out, func(a, b UsedShadow) bool { return a.Candidate == b.Candidate })
}

// compare reports what a batch learns from that is no part of its segment, or that another
// batch has learned from.
func (l *useLedger) compare(step int, batch model.Batch) {
	segment, ok := l.segments[step]
	if !ok {
		l.fault("step %d is finished, but has no segment", step)
		return
	}
	addresses := make([]record.Address, len(batch.Trajectories))
	for i, t := range batch.Trajectories {
		a, err := record.ParseAddress(t.Attempt)
		if err != nil || a != record.ConversationAddress(l.run.Name, a.Task) || !slices.Contains(segment.Conversations, a.Task) {
			l.fault("trajectory %d in the batch of step %d is %q, no conversation of its segment", i, step, t.Attempt)
			continue
		}
		addresses[i] = a
	}
	if batch.Objective() != model.PolicyGradient {
		return // a corrected text, or a pair, is named by its feedback alone
	}
	for _, row := range batch.Rows {
		a := addresses[row.Trajectory]
		if l.replies[a] == nil {
			l.replies[a] = map[int32]int{}
		}
		for i, call := range row.Calls {
			if !row.Sampled[i] {
				continue
			}
			if before, ok := l.replies[a][call]; ok && before != step {
				l.fault("call %d of %s was trained in steps %d and %d", call, a, before, step)
			}
			l.replies[a][call] = step
		}
	}
}

func (p *page) writeUse(u Use) {
	what := "reply"
	if u.pairs {
		what = "pair"
	}
	p.Line("\nWhat was learned from use")
	p.Line("  segments          %8d", u.Segments)
	p.Line("  %-17s %8d  (of %s)", readable.Name(2, what), u.Replies, readable.Count(u.Conversations, "conversation"))
	p.Line("  feedback used     %8d", u.Feedback)
	reasons := sortedReasons(u.LeftOut)
	p.lines(len(reasons), func(i int) { p.Line("  left out          %8d  (%s)", u.LeftOut[reasons[i]], reasons[i]) })
	p.lines(len(u.Shadows), func(i int) {
		s := u.Shadows[i]
		p.Line("  version %d, %s", s.Candidate, s.Reason())
		if s.Replies > s.Failed.Candidate {
			p.Line("    %s", s.Lengths())
		}
	})
}

func sortedReasons(m map[string]int) []string {
	out := make([]string, 0, len(m))
	for why := range m {
		out = append(out, why)
	}
	slices.Sort(out)
	return out
}
