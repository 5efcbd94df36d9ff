// Package signals describes each call of an attempt, apart from the attempt's outcome:
// which agent made it, which messages were new to its policy, whether its tool failed,
// its reply could not be read, it repeated its last request, it recovered from an error,
// or the agent gave it a reward.
//
// It reads records after the attempt and decides nothing: the spec gives weights to
// signals, and package credit turns them into advantages. An agent can send any spans and
// events; still, a signal fires at most once per call.
//
// The package never fails, whatever an agent writes, and equal records give equal calls.
// Exporters may send spans after an attempt has ended. Only spans that are on record when
// credit is assigned count.
package signals

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/wire"
)

// Attempt is the record of an attempt.
type Attempt struct {
	record.Attempt
	History []record.Exchange
	Rewards []record.Reward
	Spans   []record.Span
	Events  []record.Event
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
		if s.CallID != "" && s.Kind == record.ModelSpan {
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

// toolCall is a tool that a reply asked for.
type toolCall struct {
	id, name  string
	arguments string // in normal form
}

// toolCalls reads the tool calls of a reply of any API.
func toolCalls(response []byte) []toolCall {
	var out []toolCall
	for _, m := range attribution.Replies(response) {
		for _, t := range m.ToolCalls {
			out = append(out, toolCall{t.ID, t.Function.Name, normal(t.Function.Arguments)})
		}
	}
	return out
}

// normal returns JSON with sorted keys and without space. It returns any other text
// unchanged.
func normal(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // 1 and 1.0 differ, and long integers keep their digits
	var value any
	if !json.Valid([]byte(text)) || d.Decode(&value) != nil {
		return text
	}
	out, err := json.Marshal(value)
	if err != nil {
		return text
	}
	return string(out)
}

// tools finds the calls whose tools failed: from spans, and from the results that an
// agent sends back by Anthropic's API. A span that names no tool call is about the last
// call before it.
func (r *reader) tools() {
	asker := map[string]int{}
	for i, asked := range r.asked {
		for _, t := range asked {
			if t.id != "" {
				asker[t.id] = i
			}
		}
	}
	for _, s := range r.Spans {
		if s.Kind != record.ToolSpan {
			continue
		}
		i, ok := asker[s.ToolCallID]
		if !ok {
			i = r.before(s.Started)
		}
		if i >= 0 {
			r.ran[i] = true
			r.set(i, spec.SignalToolError, s.Failed)
		}
	}
	for _, c := range r.History {
		for _, id := range failedResults(c) {
			if i, ok := asker[id]; ok {
				r.set(i, spec.SignalToolError, true)
			}
		}
	}
}

// failedResults returns the ids of the tool calls that a request reports as failed. Only
// Anthropic's API has a field for that.
func failedResults(c record.Exchange) []string {
	if c.API != "messages" {
		return nil
	}
	var asked struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if json.Unmarshal(c.Request, &asked) != nil {
		return nil
	}
	var out []string
	for _, m := range asked.Messages {
		var blocks []struct {
			Type      string `json:"type"`
			ToolUseID string `json:"tool_use_id"`
			IsError   bool   `json:"is_error"`
		}
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue // bare text
		}
		for _, b := range blocks {
			if b.Type == "tool_result" && b.IsError {
				out = append(out, b.ToolUseID)
			}
		}
	}
	return out
}

// recoveries finds, for each agent, the first call after a tool error whose own tools ran
// without an error.
func (r *reader) recoveries() {
	failing := map[string]bool{}
	for i, agent := range r.callers {
		switch {
		case r.seen[i][spec.SignalToolError]:
			failing[agent] = true
		case failing[agent] && r.ran[i]:
			failing[agent] = false
			r.set(i, spec.SignalRecovered, true)
		}
	}
}

type spanID struct{ trace, span string }

// exceptions finds the calls after which an agent, or a step of it, failed by itself:
// its span failed although no span within it did. A failure within a tool is the tool's
// error, and a failed model call is not the policy's fault. The exception is set on the
// last call before the span's end.
func (r *reader) exceptions() {
	all, explained := map[spanID]record.Span{}, map[spanID]bool{}
	for _, s := range r.Spans {
		all[spanID{s.Trace, s.ID}] = s
		if s.Failed {
			explained[spanID{s.Trace, s.Parent}] = true
		}
	}
	for _, s := range r.Spans {
		own := s.Kind == record.AgentSpan || s.Kind == record.OtherSpan
		if !s.Failed || !own || explained[spanID{s.Trace, s.ID}] || withinTool(s, all) {
			continue
		}
		if i := r.before(s.Ended); i >= 0 {
			r.set(i, spec.SignalException, true)
		}
	}
}

// withinTool reports whether a span lies within the span of a tool.
func withinTool(s record.Span, all map[spanID]record.Span) bool {
	for range all { // the sender chooses the ids, so parents may form a circle
		parent, ok := all[spanID{s.Trace, s.Parent}]
		if !ok {
			return false
		}
		if parent.Kind == record.ToolSpan {
			return true
		}
		s = parent
	}
	return false
}

// reported sets the signals that events report by their names. An event belongs to the
// call that its field call_id names, or else to the last call before it.
func (r *reader) reported() {
	for _, e := range r.Events {
		switch e.Name {
		case spec.SignalToolError, spec.SignalException, spec.SignalRecovered:
		default:
			continue
		}
		i := r.before(e.At)
		if id, ok := e.Fields["call_id"].(string); ok {
			i = r.byID(id)
		}
		if i >= 0 {
			r.set(i, e.Name, true)
		}
	}
}

// repeated reports whether call i makes the same request as an earlier call, or its reply
// calls the same tools with the same arguments as the call before it. Further choices
// of one request repeat nothing.
func (r *reader) repeated(i int) bool {
	c := r.History[i]
	for _, p := range r.History[:i] {
		if p.Key == c.Key && p.Key != "" && (c.RequestName == "" || origin(p.RequestName) != origin(c.RequestName)) {
			return true
		}
	}
	p := r.preceding(i)
	return p >= 0 && len(r.asked[i]) > 0 && sameTools(r.asked[p], r.asked[i])
}

// preceding returns the call that call i continues. If there is none, it returns the last
// call of the same agent that is not another choice of the same request. Otherwise it
// returns -1.
func (r *reader) preceding(i int) int {
	c := r.History[i]
	for k := i - 1; k >= 0; k-- {
		if c.Parent >= 0 && r.History[k].Seq == c.Parent {
			return k
		}
	}
	for k := i - 1; k >= 0; k-- {
		p := r.History[k]
		if r.callers[k] == r.callers[i] && (p.RequestName == "" || origin(p.RequestName) != origin(c.RequestName)) {
			return k
		}
	}
	return -1
}

// origin returns the name of the request that an exchange belongs to. The gateway names
// the further choices of a request by the request's name, a slash and their number.
func origin(exchange string) string {
	if at := strings.LastIndexByte(exchange, '/'); at >= 0 && strings.Trim(exchange[at+1:], "0123456789") == "" {
		return exchange[:at]
	}
	return exchange
}

// sameTools reports whether two replies ask for the same tool calls. It ignores ids.
func sameTools(a, b []toolCall) bool {
	return slices.EqualFunc(a, b, func(x, y toolCall) bool { return x.name == y.name && x.arguments == y.arguments })
}

// message is the part of a message by which states differ. Ids are not part of it,
// because they carry no meaning.
type message struct {
	Role dialog.Role `json:"role"`
	Text string      `json:"text"`
}

// state returns a name for the state in which call i was made: the agent, and the
// messages after the assistant's last one. For an agent that keeps its history, these are
// the environment's answer. For an agent that describes the whole state in each request,
// they are the whole request. Earlier messages are left out, because otherwise no two
// states of agents with a history would be equal. Text that the run's replay.ignore
// matches is left out as well. The state of a prompt without messages is its tokens.
// Spans are not part of the state, because they arrive late for some attempts.
func (r *reader) state(i int) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	// Strings, and structs of strings, always encode, and writing to a hash never fails.
	_ = e.Encode(r.askers[i])
	if q := r.requests[i]; q != nil && q.API != wire.Completions && len(q.Dialog) > 0 {
		for _, m := range dialog.Latest(q.Dialog) {
			_ = e.Encode(message{m.Role, strings.TrimSpace(r.ignored.Without(m.Content))})
		}
	} else {
		_ = binary.Write(h, binary.LittleEndian, r.History[i].Prompt)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
