package attribution_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/record"
)

func call(seq, parent int, request string) record.Exchange {
	return record.Exchange{Call: record.Call{Seq: seq, Parent: parent, ID: "chatcmpl-" + string(rune('a'+seq))}, Request: json.RawMessage(request)}
}

const plain = `{"model":"m","messages":[{"role":"system","content":"You write."},{"role":"user","content":"go"}]}`

func TestTheBestEvidenceDecides(t *testing.T) {
	t.Parallel()
	named := call(0, -1, plain)
	named.Agent = "configured"
	spans := []record.Span{{Trace: "t", ID: "1", Kind: record.ModelSpan, CallID: "chatcmpl-a", Agent: "traced"}}
	require.Equal(t, []attribution.Name{{Agent: "configured", Source: attribution.Path}}, attribution.Of([]record.Exchange{named}, spans, nil))
	named.Agent = ""
	require.Equal(t, []attribution.Name{{Agent: "traced", Source: attribution.Span}}, attribution.Of([]record.Exchange{named}, spans, nil))
	got := attribution.Of([]record.Exchange{named}, nil, nil)
	require.Equal(t, attribution.Instructions, got[0].Source)
	require.Regexp(t, "^agent-[0-9a-f]{8}$", got[0].Agent)
}

func TestASpanWithoutAgentIsOfTheStepAroundIt(t *testing.T) {
	t.Parallel()
	spans := []record.Span{
		{Trace: "t", ID: "root", Kind: record.AgentSpan, Name: "LangGraph"},
		{Trace: "t", ID: "node", Parent: "root", Kind: record.AgentSpan, Name: "writer"},
		{Trace: "t", ID: "http", Parent: "node", Kind: record.OtherSpan, Name: "POST"},
		{Trace: "t", ID: "llm", Parent: "http", Kind: record.ModelSpan, Name: "ChatOpenAI", CallID: "chatcmpl-a"},
		{Trace: "t", ID: "circle", Parent: "circle", Kind: record.ModelSpan, CallID: "chatcmpl-b"},
		{Trace: "other", ID: "orphan", Parent: "node", Kind: record.ModelSpan, CallID: "chatcmpl-c"},
	}
	got := attribution.Of([]record.Exchange{call(0, -1, plain), call(1, -1, plain), call(2, -1, plain)}, spans, nil)
	require.Equal(t, attribution.Name{Agent: "writer", Source: attribution.Span}, got[0])
	require.Equal(t, attribution.Instructions, got[1].Source, "parents in a circle name nobody")
	require.Equal(t, attribution.Instructions, got[2].Source, "a parent in another trace is none")
}

// OpenInference puts a step named "turn" between the agents of the OpenAI Agents SDK and
// their calls.
func TestAnAgentAroundAStepIsKnownBetterThanTheStep(t *testing.T) {
	t.Parallel()
	spans := []record.Span{
		{Trace: "t", ID: "flow", Kind: record.AgentSpan, Name: "Agent workflow"},
		{Trace: "t", ID: "agent", Parent: "flow", Kind: record.AgentSpan, Name: "triage", Agent: "triage"},
		{Trace: "t", ID: "turn", Parent: "agent", Kind: record.AgentSpan, Name: "turn"},
		{Trace: "t", ID: "llm", Parent: "turn", Kind: record.ModelSpan, Name: "response", CallID: "chatcmpl-a"},
	}
	require.Equal(t, []attribution.Name{{Agent: "triage", Source: attribution.Span}}, attribution.Of([]record.Exchange{call(0, -1, plain)}, spans, nil))
}

func TestNamesInTheDialogReachTheCallBeforeThem(t *testing.T) {
	t.Parallel()
	second := `{"model":"m","messages":[{"role":"system","content":"You write."},{"role":"user","content":"go"},{"role":"assistant","content":"so","name":"calc_agent"},{"role":"user","content":"on"}]}`
	got := attribution.Of([]record.Exchange{call(0, -1, plain), call(1, 0, second)}, nil, nil)
	require.Equal(t, []attribution.Name{{Agent: "calc_agent", Source: attribution.Message}, {Agent: "calc_agent", Source: attribution.Message}}, got)
}

func TestAHandoffNamesTheAgentThatTookOver(t *testing.T) {
	t.Parallel()
	responses := call(0, -1, `{"model":"m","instructions":"You know history.","input":[
		{"role":"user","content":"when?"},
		{"type":"function_call","call_id":"call_x_0","name":"transfer_to_history","arguments":"{}"},
		{"type":"function_call_output","call_id":"call_x_0","output":"{\"assistant\":\"History Tutor\"}"}]}`)
	responses.API = "responses"
	require.Equal(t, []attribution.Name{{Agent: "History Tutor", Source: attribution.Handoff}}, attribution.Of([]record.Exchange{responses}, nil, nil))
}

func TestInstructionsAndToolsTellAgentsApart(t *testing.T) {
	t.Parallel()
	other := `{"model":"m","messages":[{"role":"system","content":"You check."},{"role":"user","content":"go"}]}`
	tools := `{"model":"m","messages":[{"role":"system","content":"You write."},{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"search"}}]}`
	later := `{"model":"m","messages":[{"role":"system","content":"You write."},{"role":"user","content":"something else"}]}`
	got := attribution.Of([]record.Exchange{call(0, -1, plain), call(1, -1, other), call(2, -1, tools), call(3, -1, later), call(4, -1, `not JSON`)}, nil, nil)
	require.NotEqual(t, got[0].Agent, got[1].Agent)
	require.NotEqual(t, got[0].Agent, got[2].Agent)
	require.Equal(t, got[0], got[3])
	require.Empty(t, got[4].Agent)
}

func TestWhatIsIgnoredInReplaysTellsNoAgentsApart(t *testing.T) {
	t.Parallel()
	at := func(clock string) []record.Exchange {
		return []record.Exchange{call(0, -1, `{"model":"m","messages":[{"role":"system","content":"You write. It is `+clock+`."},{"role":"user","content":"go"}]}`)}
	}
	clock := []string{`\d\d:\d\d`}
	require.NotEqual(t, attribution.Of(at("10:31"), nil, nil), attribution.Of(at("10:32"), nil, nil))
	require.Equal(t, attribution.Of(at("10:31"), nil, clock), attribution.Of(at("10:32"), nil, clock))
	require.Equal(t, attribution.Of(at("10:31"), nil, nil), attribution.Of(at("10:31"), nil, []string{"never"}), "the digest is what it was")
}
