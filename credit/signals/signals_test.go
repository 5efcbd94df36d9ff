package signals_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// at returns a moment of the attempt.
func at(second int) time.Time {
	return time.Date(2026, 11, 21, 10, 0, second, 0, time.UTC)
}

// call returns a call that asks for the tool f with arguments, unless they are empty.
// Call seq takes one second and begins 10·seq + 2 seconds after the attempt's beginning.
func call(seq int, arguments string) record.Exchange {
	message := map[string]any{"role": "assistant", "content": "so"}
	if arguments != "" {
		message["tool_calls"] = []any{map[string]any{
			"id": fmt.Sprintf("call_%d", seq), "type": "function", "function": map[string]any{"name": "f", "arguments": arguments},
		}}
	}
	reply, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": message}}})
	if err != nil {
		panic(err) // plain values
	}
	return record.Exchange{Call: record.Call{
		Seq: seq, Parent: -1, ID: fmt.Sprintf("chatcmpl-%d", seq), Agent: "solo", Key: fmt.Sprint(seq), Prompt: []int32{int32(seq)},
		Started: at(10*seq + 2), Duration: time.Second,
	}, Request: json.RawMessage(`{"model":"m","messages":[{"role":"user","content":"go"}]}`), Response: reply}
}

// attempt returns an attempt whose calls ask for f with these arguments.
func attempt(arguments ...string) signals.Attempt {
	var a signals.Attempt
	for seq, one := range arguments {
		a.History = append(a.History, call(seq, one))
	}
	return a
}

// tool returns the span of a tool that ran after call seq.
func tool(seq int, id string, failed bool) record.Span {
	return record.Span{
		Trace: "t", ID: fmt.Sprintf("tool-%d-%s", seq, id), Kind: record.ToolSpan, Name: "f", ToolCallID: id, Failed: failed,
		Started: at(10*seq + 4), Ended: at(10*seq + 5),
	}
}

// names returns the signals that fired, by call.
func names(a signals.Attempt) [][]string {
	var out [][]string
	for _, c := range signals.Of(a) {
		var fired []string
		for _, s := range c.Signals {
			fired = append(fired, s.Name)
		}
		out = append(out, fired)
	}
	return out
}

func TestAFailedToolIsTheErrorOfTheCallThatAskedForIt(t *testing.T) {
	t.Parallel()
	a := attempt(`{"x":1}`, `{"x":2}`, `{"x":3}`)
	a.Spans = []record.Span{tool(2, "call_0", true), tool(1, "call_1", false)} // the tool of the first call ran for a long time
	require.Equal(t, [][]string{{spec.SignalToolError}, {spec.SignalRecovered}, nil}, names(a))

	a.Spans = []record.Span{tool(1, "", true), tool(1, "unknown", true)}
	require.Equal(t, [][]string{nil, {spec.SignalToolError}, nil}, names(a), "without a known id it is the last call before it, once")

	early := tool(0, "", true)
	early.Started = at(1)
	a.Spans = []record.Span{early}
	require.Equal(t, [][]string{nil, nil, nil}, names(a), "no call came before it")
}

func TestSpansOfModelCallsSetTheClock(t *testing.T) {
	t.Parallel()
	a := attempt(`{"x":1}`, `{"x":2}`)
	const ahead = time.Hour // how far the agent's clock is ahead
	late := func(s record.Span) record.Span {
		s.Started, s.Ended = s.Started.Add(ahead), s.Ended.Add(ahead)
		return s
	}
	failed := late(tool(0, "", true))
	a.Spans = []record.Span{failed}
	require.Equal(t, [][]string{nil, {spec.SignalToolError}}, names(a), "as far as our own clock can tell")
	for seq := range 2 {
		a.Spans = append(a.Spans, late(record.Span{
			Trace: "t", ID: fmt.Sprint(seq), Kind: record.ModelSpan, CallID: a.History[seq].ID, Started: at(10*seq + 2), Ended: at(10*seq + 3),
		}))
	}
	require.Equal(t, [][]string{{spec.SignalToolError}, nil}, names(a))
}

func TestAnthropicsResultsSayThatAToolFailed(t *testing.T) {
	t.Parallel()
	a := attempt("", "")
	a.History[0].API, a.History[1].API = "messages", "messages"
	a.History[0].Response = json.RawMessage(`{"content":[{"type":"text","text":"so"},{"type":"tool_use","id":"toolu_1","name":"f","input":{"x":1}}]}`)
	a.History[1].Request = json.RawMessage(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"},
		{"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"f","input":{"x":1}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":true,"content":"no"}]}]}`)
	require.Equal(t, [][]string{{spec.SignalToolError}, nil}, names(a))
}

func TestRecoveryIsTheFirstToolThatRunsAfterAnErrorOfTheSameAgent(t *testing.T) {
	t.Parallel()
	a := attempt(`1`, `2`, ``, `3`, `4`)
	a.Spans = []record.Span{tool(0, "call_0", true), tool(1, "call_1", true), tool(3, "call_3", false), tool(4, "call_4", false)}
	require.Equal(t, [][]string{{spec.SignalToolError}, {spec.SignalToolError}, nil, {spec.SignalRecovered}, nil}, names(a))
	a.History[3].Agent = "other"
	require.Equal(t, [][]string{{spec.SignalToolError}, {spec.SignalToolError}, nil, nil, {spec.SignalRecovered}}, names(a))
}

func TestAnExceptionIsWhereItBegan(t *testing.T) {
	t.Parallel()
	span := func(id, parent string, kind record.SpanKind, failed bool, end int) record.Span {
		return record.Span{Trace: "t", ID: id, Parent: parent, Kind: kind, Failed: failed, Started: at(0), Ended: at(end)}
	}
	a := attempt("", "", "")
	a.Spans = []record.Span{
		span("run", "", record.AgentSpan, true, 29),
		span("node", "run", record.AgentSpan, true, 17),
	}
	require.Equal(t, [][]string{nil, {spec.SignalException}, nil}, names(a), "what passes it on is no other one")
	a.Spans = append(a.Spans, span("tool", "node", record.ToolSpan, true, 17), span("http", "tool", record.OtherSpan, true, 17))
	a.Spans[2].Started = at(14)
	require.Equal(t, [][]string{nil, {spec.SignalToolError}, nil}, names(a), "a tool's error is no exception as well")
	a.Spans = []record.Span{span("run", "", record.AgentSpan, true, 29), span("llm", "run", record.ModelSpan, true, 17)}
	require.Equal(t, [][]string{nil, nil, nil}, names(a), "a model call that failed is not the policy's")
	a.Spans = []record.Span{span("x", "y", record.OtherSpan, true, 29), span("y", "x", record.AgentSpan, false, 29)}
	require.Equal(t, [][]string{nil, nil, {spec.SignalException}}, names(a), "parents in a circle end somewhere")
}

func TestRepetitionsAreSeenWhateverTheIds(t *testing.T) {
	t.Parallel()
	a := attempt(`{"x":1,"y":2}`, `{ "y": 2, "x": 1 }`, `{"x":1}`, ``)
	require.Equal(t, [][]string{nil, {spec.SignalRepeatedCall}, nil, nil}, names(a), "the same tool with equal arguments")

	a = attempt(``, ``, ``)
	require.Equal(t, [][]string{nil, nil, nil}, names(a), "two replies without tools are no repetition")
	a.History[2].Key = a.History[0].Key
	require.Equal(t, [][]string{nil, nil, {spec.SignalRepeatedCall}}, names(a), "the same request")
	a.History[0].RequestName, a.History[2].RequestName = "e", "e/1"
	require.Equal(t, [][]string{nil, nil, nil}, names(a), "two choices of one request")
	a.History[2].RequestName = "f"
	require.Equal(t, [][]string{nil, nil, {spec.SignalRepeatedCall}}, names(a))

	a = attempt(`1`, `1`)
	a.History[1].Agent = "other"
	require.Equal(t, [][]string{nil, nil}, names(a), "what another agent asked is not repeated")
	a.History[1].Parent = 0
	require.Equal(t, [][]string{nil, {spec.SignalRepeatedCall}}, names(a), "but what the dialog goes on from is")
}

func TestAgentsCanSayItThemselves(t *testing.T) {
	t.Parallel()
	a := attempt(``, ``, ``)
	a.History[1].ParseError = "no tool call"
	a.Rewards = []record.Reward{
		{Name: "a", Value: 0.5, CallID: "chatcmpl-2"}, {Name: "b", Value: -2, CallID: "chatcmpl-2"}, {Name: "final", Value: 9},
		{Name: "c", Value: 9, CallID: "chatcmpl-9"},
	}
	a.Events = []record.Event{
		{Name: spec.SignalException, At: at(19)},
		{Name: spec.SignalToolError, At: at(29), Fields: map[string]any{"call_id": "chatcmpl-0"}},
		{Name: spec.SignalToolError, At: at(29), Fields: map[string]any{"call_id": "nobody's"}},
		{Name: spec.SignalParseFailure, At: at(29)}, {Name: spec.SignalEmitted, At: at(29)}, {Name: "done", At: at(29)},
	}
	got := signals.Of(a)
	require.Equal(t, []signals.Signal{{Name: spec.SignalToolError, Value: 1}}, got[0].Signals)
	require.Equal(t, []signals.Signal{{Name: spec.SignalException, Value: 1}, {Name: spec.SignalParseFailure, Value: 1}}, got[1].Signals)
	require.Equal(t, []signals.Signal{{Name: spec.SignalEmitted, Value: -1.5}}, got[2].Signals)
	weights := map[string]float64{spec.SignalException: -0.25, spec.SignalParseFailure: -1, spec.SignalEmitted: 2}
	require.InDelta(t, 0, got[0].Earned(weights), 0, "what has no weight earns nothing")
	require.InDelta(t, -1.25, got[1].Earned(weights), 0)
	require.InDelta(t, -3, got[2].Earned(weights), 0)
}

func TestRepliesOfEveryAPITellTheirTools(t *testing.T) {
	t.Parallel()
	replies := map[string]string{
		"":          `{"choices":[{"message":{"tool_calls":[{"id":"call_x","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}}]}`,
		"functions": `{"choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{\"x\":1}"}}}]}`,
		"responses": `{"output":[{"type":"message","content":[]},{"type":"function_call","id":"fc_1","call_id":"call_x","name":"f","arguments":"{\"x\":1}"}]}`,
		"messages":  `{"type":"message","content":[{"type":"tool_use","id":"call_x","name":"f","input":{"x":1}}]}`,
	}
	for api, reply := range replies {
		a := attempt("", `{"x":1}`)
		a.History[0].Response = json.RawMessage(reply)
		require.Equal(t, [][]string{nil, {spec.SignalRepeatedCall}}, names(a), api)
	}
}

// Signals are read from records of any content that agents and exporters may write.
func FuzzRecordsOfAnythingAreRead(f *testing.F) {
	f.Add("", `{"messages":[]}`, `{"choices":[]}`, "t", "p", "call_0", []byte{1})
	f.Add("messages", `{"messages":[{"content":[{"type":"tool_result","is_error":true}]}]}`, `{"content":[{"type":"tool_use","input":[]}]}`, "", "", "", []byte{})
	f.Add("responses", `{"input":"x"}`, `{"output":[{"type":"function_call","arguments":"{"}]}`, "a", "a", "a", []byte{0, 0, 9})
	f.Add("completions", `{"prompt":"x"}`, `{"choices":[{"text":"y"}]}`, "a", "b", "c", []byte("x"))
	f.Fuzz(func(t *testing.T, api, request, response, id, parent, toolCall string, kinds []byte) {
		a := attempt("1", "2")
		c := &a.History[1]
		c.API, c.Request, c.Response, c.RequestName = api, json.RawMessage(request), json.RawMessage(response), id
		a.Terms.Ignore = []string{"(", parent}
		for i, k := range kinds[:min(len(kinds), 16)] {
			kind := []record.SpanKind{record.ModelSpan, record.ToolSpan, record.AgentSpan, record.OtherSpan}[k%4]
			a.Spans = append(a.Spans, record.Span{
				Trace: "t", ID: id + fmt.Sprint(i%3), Parent: parent + fmt.Sprint(k%3), Kind: kind, Failed: k%8 > 3,
				ToolCallID: toolCall, CallID: toolCall, Started: at(int(k)), Ended: at(int(k)),
			})
			a.Events = append(a.Events, record.Event{Name: spec.Signals()[k%6], At: at(int(k)), Fields: map[string]any{"call_id": any(toolCall)}})
		}
		got := signals.Of(a)
		require.Len(t, got, 2)
		require.Equal(t, got, signals.Of(a))
		for _, c := range got {
			require.LessOrEqual(t, len(c.Signals), len(spec.Signals()))
			require.Len(t, c.State, 32)
		}
	})
}
