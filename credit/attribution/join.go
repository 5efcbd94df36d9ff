package attribution

import (
	"cmp"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// clockSlack is by how much the clocks of an agent and of the gateway may differ.
const clockSlack = 100 * time.Millisecond

// Join returns the spans, those of model calls with the id of the call that they tell
// of where they name none. Such a span joins a call whose instructions, messages and
// reply are those that it tells, and which lies within its time. It does so only if
// no other span and no other call could be meant, or if all that could be are of one
// agent: a join that may be wrong is none.
func Join(calls []trace.Exchange, requests []*wire.Request, spans []trace.Span) []trace.Span {
	j := newJoining(calls, requests, spans)
	if len(j.spans) == 0 {
		return spans
	}
	out := slices.Clone(spans)
	for len(j.spans) > 0 {
		group, of := j.take()
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

// joining are the spans and calls that are left to join, by index.
type joining struct {
	spans map[int][]int // and the calls that each may tell of
	calls map[int][]int // and the spans that may tell of each
}

func newJoining(calls []trace.Exchange, requests []*wire.Request, spans []trace.Span) joining {
	j := joining{spans: map[int][]int{}, calls: map[int][]int{}}
	named := map[string]bool{}
	for _, s := range spans {
		named[s.CallID] = true
	}
	var said map[int]told // computed only if a span wants it
	for i, s := range spans {
		t := toldBy(s)
		if s.Kind != trace.ModelSpan || s.CallID != "" || s.Failed || t.dialog == "" || t.reply == "" {
			continue
		}
		if said == nil {
			said = map[int]told{}
			for k, c := range calls {
				if !named[c.ID] && requests[k] != nil {
					said[k] = toldIn(c, requests[k])
				}
			}
		}
		for k := range calls {
			if of, ok := said[k]; ok && t.same(of) && within(s, calls[k]) {
				j.spans[i], j.calls[k] = append(j.spans[i], k), append(j.calls[k], i)
			}
		}
	}
	return j
}

// take removes spans and calls that hang together, and returns them.
func (j joining) take() (spans, calls []int) {
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

func oneAgent(group []int, spans []trace.Span) bool {
	all := byID(spans)
	name := around(spans[group[0]], all)
	return name != "" && !slices.ContainsFunc(group, func(s int) bool { return around(spans[s], all) != name })
}

// told are fingerprints of what was said in a call.
type told struct{ instructions, dialog, reply string }

func toldBy(s trace.Span) told {
	text := func(name string) string {
		v, _ := s.Attributes[name].(string)
		return v
	}
	return told{text(trace.ToldInstructions), text(trace.ToldDialog), text(trace.ToldReply)}
}

func toldIn(c trace.Exchange, r *wire.Request) told {
	instructions, rest := dialog.Instructions(r.Dialog)
	return told{dialog.Fingerprint(instructions), dialog.Fingerprint(rest), dialog.Fingerprint(Replies(c.Response))}
}

// same is about a span's t and a call's o. Not every span tells instructions.
func (t told) same(o told) bool {
	return t.dialog == o.dialog && t.reply == o.reply && (t.instructions == "" || t.instructions == o.instructions)
}

// within reports whether the call lies in the time of the span.
func within(s trace.Span, c trace.Exchange) bool {
	return !s.Started.IsZero() && !s.Ended.IsZero() &&
		!c.Started.Before(s.Started.Add(-clockSlack)) && !c.Started.Add(c.Duration).After(s.Ended.Add(clockSlack))
}
