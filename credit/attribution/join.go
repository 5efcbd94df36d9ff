package attribution

import (
	"cmp"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// clockSlack is by how much the clocks of an agent and of the gateway may differ.
const clockSlack = 100 * time.Millisecond

// Join returns the spans. If a span of a model call has no id of a call, Join gives it
// the id of the call that it belongs to. A span can belong to a call with the same
// instructions, messages and reply that was in progress at the span's time. They are
// joined only if no other spans or calls are candidates, or if all candidates belong to
// one agent. If the result could be wrong, Join does not join them.
func Join(calls []record.Exchange, requests []*wire.Request, spans []record.Span) []record.Span {
	j := newCandidates(calls, requests, spans)
	if len(j.spans) == 0 {
		return spans
	}
	out := slices.Clone(spans)
	for len(j.spans) > 0 {
		group, of := j.removeComponent()
		if len(group) != len(of) || len(group) > 1 && !oneAgent(group, spans) {
			continue
		}
		slices.SortFunc(group, func(a, b int) int { return cmp.Compare(spans[a].Started.UnixNano(), spans[b].Started.UnixNano()) })
		slices.Sort(of) // calls are in the order of their time
		for i, s := range group {
			out[s].CallID = calls[of[i]].ID
		}
	}
	return out
}

// candidates are the spans and calls that are not joined yet, by index.
type candidates struct {
	spans map[int][]int // the calls that each span may belong to
	calls map[int][]int // the spans that may belong to each call
}

func newCandidates(calls []record.Exchange, requests []*wire.Request, spans []record.Span) candidates {
	j := candidates{spans: map[int][]int{}, calls: map[int][]int{}}
	named := map[string]bool{}
	for _, s := range spans {
		named[s.CallID] = true
	}
	var ofCalls map[int]fingerprints // computed only if a span needs it
	for i, s := range spans {
		t := fingerprintsOfSpan(s)
		if s.Kind != record.ModelSpan || s.CallID != "" || s.Failed || t.dialog == "" || t.reply == "" {
			continue
		}
		if ofCalls == nil {
			ofCalls = map[int]fingerprints{}
			for k, c := range calls {
				if !named[c.ID] && requests[k] != nil {
					ofCalls[k] = fingerprintsOfCall(c, requests[k])
				}
			}
		}
		for k := range calls {
			if of, ok := ofCalls[k]; ok && t.same(of) && within(s, calls[k]) {
				j.spans[i], j.calls[k] = append(j.spans[i], k), append(j.calls[k], i)
			}
		}
	}
	return j
}

// removeComponent removes and returns the spans and calls that are connected with the
// first span.
func (j candidates) removeComponent() (spans, calls []int) {
	first := -1
	for s := range j.spans {
		if first < 0 || s < first {
			first = s
		}
	}
	open := []int{first}
	for len(open) > 0 {
		s := open[0]
		open = open[1:]
		reach, there := j.spans[s]
		if !there {
			continue
		}
		delete(j.spans, s)
		spans = append(spans, s)
		for _, c := range reach {
			if by, there := j.calls[c]; there {
				delete(j.calls, c)
				calls = append(calls, c)
				open = append(open, by...)
			}
		}
	}
	return spans, calls
}

func oneAgent(group []int, spans []record.Span) bool {
	all := byID(spans)
	name := around(spans[group[0]], all)
	return name != "" && !slices.ContainsFunc(group, func(s int) bool { return around(spans[s], all) != name })
}

// fingerprints are the fingerprints of the messages of one call.
type fingerprints struct{ instructions, dialog, reply string }

func fingerprintsOfSpan(s record.Span) fingerprints {
	text := func(name string) string {
		v, _ := s.Attributes[name].(string)
		return v
	}
	return fingerprints{text(record.InstructionsFingerprint), text(record.DialogFingerprint), text(record.ReplyFingerprint)}
}

func fingerprintsOfCall(c record.Exchange, r *wire.Request) fingerprints {
	instructions, rest := dialog.Instructions(r.Dialog)
	return fingerprints{dialog.Fingerprint(instructions), dialog.Fingerprint(rest), dialog.Fingerprint(Replies(c.Response))}
}

// same reports whether a span's fingerprints match those of a call. Not every span has
// instructions.
func (f fingerprints) same(call fingerprints) bool {
	return f.dialog == call.dialog && f.reply == call.reply && (f.instructions == "" || f.instructions == call.instructions)
}

// within reports whether the call lies in the time of the span.
func within(s record.Span, c record.Exchange) bool {
	return !s.Started.IsZero() && !s.Ended.IsZero() &&
		!c.Started.Before(s.Started.Add(-clockSlack)) && !c.Started.Add(c.Duration).After(s.Ended.Add(clockSlack))
}
