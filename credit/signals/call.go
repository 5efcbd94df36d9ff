package signals

import (
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// Attempt is the record of an attempt.
type Attempt struct {
	trace.Attempt
	History []trace.Exchange
	Rewards []trace.Reward
	Spans   []trace.Span
	Events  []trace.Event
}

// Call describes a single call.
type Call struct {
	// Agent is the agent that made the call, as package attribution finds it.
	Agent string `json:"agent"`
	// State is equal for calls in which the policy saw the same new messages.
	State string `json:"state"`
	// Signals are the signals that fired, in the order of spec.Signals.
	Signals []Signal `json:"signals"`
}

// Signal is a signal that fired. For rewards that the agent emitted, Value is their sum;
// for other signals it is 1.
type Signal struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Text returns the signal as readable text.
func (s Signal) Text() string {
	if s.Name == spec.SignalEmitted {
		return fmt.Sprintf("%s %g", s.Name, s.Value)
	}
	return s.Name
}

// Earned returns the weighted sum of the call's signals.
func (c Call) Earned(weights map[string]float64) float64 {
	sum := 0.0
	for _, s := range c.Signals {
		sum += weights[s.Name] * s.Value
	}
	return sum
}

// Of returns the description of each call of an attempt, in order.
func Of(a Attempt) []Call {
	r := newReader(a)
	r.tools()
	r.exceptions()
	r.reported()
	r.recoveries()
	out := make([]Call, len(a.History))
	for i, c := range a.History {
		r.set(i, spec.SignalParseFailure, c.ParseError != "")
		r.set(i, spec.SignalRepeatedCall, r.repeated(i))
		out[i] = Call{Agent: r.callers[i], State: r.state(i), Signals: r.fired(i)}
	}
	return out
}

// reader reads an attempt. Its slices have one entry for each call.
type reader struct {
	Attempt
	callers  []string
	askers   []string        // the same, but found from the requests alone, without spans
	requests []*wire.Request // nil for a request that can't be read
	asked    [][]toolCall    // the tool calls of each reply
	answered []time.Time     // when the agent had received the reply
	ran      []bool          // spans show that a tool that the call asked for ran
	seen     []map[string]bool
	ignored  attribution.Patterns
}

func newReader(a Attempt) *reader {
	n, requests := len(a.History), attribution.Requests(a.History)
	a.Spans = attribution.Join(a.History, requests, a.Spans)
	r := &reader{
		Attempt: a, callers: make([]string, n), askers: make([]string, n), requests: requests, asked: make([][]toolCall, n),
		answered: make([]time.Time, n), ran: make([]bool, n), seen: make([]map[string]bool, n), ignored: attribution.Compile(a.Terms.Ignore),
	}
	ended := map[string]time.Time{} // end of model calls, by the id of their reply
	for _, s := range a.Spans {
		if s.CallID != "" && s.Kind == trace.ModelSpan {
			ended[s.CallID] = s.Ended
		}
	}
	for i, name := range attribution.OfRequests(a.History, r.requests, a.Spans, a.Terms.Ignore) {
		r.callers[i] = name.Agent
	}
	for i, name := range attribution.OfRequests(a.History, r.requests, nil, a.Terms.Ignore) {
		r.askers[i] = name.Agent
	}
	for i, c := range a.History {
		r.seen[i] = map[string]bool{}
		r.asked[i] = toolCalls(c.Response)
		// Spans have times of the agent's clock. If a call has a span, its time is taken
		// from there, so that both times are of the same clock.
		r.answered[i] = c.Started.Add(c.Duration)
		if at, ok := ended[c.ID]; ok {
			r.answered[i] = at
		}
	}
	return r
}

func (r *reader) set(i int, signal string, fired bool) {
	if fired {
		r.seen[i][signal] = true
	}
}

// fired returns the signals of call i.
func (r *reader) fired(i int) []Signal {
	out := []Signal{}
	for _, name := range spec.Signals() {
		if name == spec.SignalEmitted {
			if sum, ok := r.emitted(i); ok {
				out = append(out, Signal{name, sum})
			}
		} else if r.seen[i][name] {
			out = append(out, Signal{name, 1})
		}
	}
	return out
}

// emitted returns the sum of the rewards that the agent gave to call i.
func (r *reader) emitted(i int) (sum float64, ok bool) {
	for _, w := range r.Rewards {
		if w.CallID != "" && w.CallID == r.History[i].ID {
			sum, ok = sum+w.Value, true
		}
	}
	return sum, ok
}

// byID returns the index of the call with the given id, or -1.
func (r *reader) byID(id string) int {
	for i, c := range r.History {
		if c.ID == id {
			return i
		}
	}
	return -1
}

// before returns the index of the last call that was answered before or at a moment, or
// -1.
func (r *reader) before(moment time.Time) int {
	last := -1
	for i, at := range r.answered {
		if !at.After(moment) && (last < 0 || !at.Before(r.answered[last])) {
			last = i
		}
	}
	return last
}
