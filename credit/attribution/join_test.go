package attribution_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/gateway/otlp"
	"github.com/fulgurite/fulgurite/record"
)

const toolCall = `{"role":"assistant","content":null,"tool_calls":[{"id":"call_0123456789abcdef01234567_0","type":"function","function":{"name":"count","arguments":"{\"text\": \"Rivers run.\"}"}}]}`

// graph returns the calls of the graph in examples/openinference, as the gateway records
// them.
func graph() []record.Exchange {
	var out []record.Exchange
	for i, c := range [][2]string{
		{`{"role":"system","content":"Write a line about the topic."},{"role":"user","content":"rivers"}`, `{"role":"assistant","content":"Rivers run."}`},
		{`{"role":"system","content":"Count the words, then say whether the line is good."},{"role":"user","content":"Rivers run."}`, toolCall},
		{`{"role":"system","content":"Count the words, then say whether the line is good."},{"role":"user","content":"Rivers run."},` + toolCall +
			`,{"role":"tool","tool_call_id":"call_0123456789abcdef01234567_0","content":"2"}`, `{"role":"assistant","content":"two, good"}`},
		{`{"role":"system","content":"Write this line better."},{"role":"user","content":"Rivers run."}`, `{"role":"assistant","content":"Rivers run to the sea."}`},
	} {
		parent := -1
		if i == 2 {
			parent = 1
		}
		one := call(i, parent, `{"model":"m","messages":[`+c[0]+`]}`)
		one.Response = json.RawMessage(`{"choices":[{"message":` + c[1] + `}]}`)
		out = append(out, one)
	}
	return out
}

// recorded returns the spans that an instrumentation sent for the streamed graph, and the
// indices of those that are model calls.
func recorded(t *testing.T, of string) (spans []record.Span, ofModel []int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", of+"-stream.json"))
	require.NoError(t, err)
	encoding, err := otlp.EncodingOf("application/json")
	require.NoError(t, err)
	batch, err := encoding.Decode(data)
	require.NoError(t, err)
	for i, s := range batch.Spans {
		if s.Kind == record.ModelSpan {
			require.Empty(t, s.CallID, "what streams has an id of LangChain's own")
			ofModel = append(ofModel, i)
		}
	}
	return batch.Spans, ofModel
}

// during sets a call's time to lie within a span.
func during(c *record.Exchange, s record.Span) {
	c.Started, c.Duration = s.Started.Add(time.Millisecond), s.Ended.Sub(s.Started)-2*time.Millisecond
}

func TestStreamedCallsOfAGraphAreThoseOfTheirNodes(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"openinference", "openllmetry"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			spans, ofModel := recorded(t, of)
			calls := graph()
			require.Len(t, ofModel, len(calls))
			for i := range calls {
				during(&calls[i], spans[ofModel[i]])
			}
			var agents []string
			for _, n := range attribution.Of(calls, spans, nil) {
				require.Equal(t, attribution.Span, n.Source)
				agents = append(agents, n.Agent)
			}
			require.Equal(t, []string{"writer", "checker", "checker", "rewriter"}, agents)
			joined := attribution.Join(calls, attribution.Requests(calls), spans)
			for i, s := range ofModel {
				require.Equal(t, calls[i].ID, joined[s].CallID)
				require.Empty(t, spans[s].CallID, "what was read is left alone")
			}
		})
	}
}

// said returns a span and a call with the same dialog, at the given second.
func said(id, agent string, second int, seq int) (record.Span, record.Exchange) {
	at := time.Date(2026, 11, 21, 12, 0, second, 0, time.UTC)
	c := graph()[0]
	c.Seq, c.ID = seq, "chatcmpl-"+string(rune('a'+seq))
	// The receiver makes the span from an exported span with this dialog.
	encoding, _ := otlp.EncodingOf("application/json")
	text := func(name, value string) map[string]any {
		return map[string]any{"key": name, "value": map[string]any{"stringValue": value}}
	}
	body, _ := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{"scopeSpans": []any{map[string]any{"spans": []any{map[string]any{
		"traceId": "00000000000000000000000000000001", "spanId": "000000000000000" + id, "name": "chat",
		"startTimeUnixNano": at.UnixNano(), "endTimeUnixNano": at.Add(time.Second).UnixNano(),
		"attributes": []any{
			text("gen_ai.operation.name", "chat"), text("gen_ai.agent.name", agent),
			text("gen_ai.system_instructions", `[{"type":"text","content":"Write a line about the topic."}]`),
			text("gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"rivers"}]}]`),
			text("gen_ai.output.messages", `[{"role":"assistant","parts":[{"type":"text","content":"Rivers run."}]}]`),
		},
	}}}}}}})
	batch, err := encoding.Decode(body)
	if err != nil {
		panic(err)
	}
	during(&c, batch.Spans[0])
	return batch.Spans[0], c
}

func TestAJoinThatMayBeWrongIsNone(t *testing.T) {
	t.Parallel()
	const other = "another agent"
	for name, c := range map[string]struct {
		change func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange)
		joined []string // by span
	}{
		"one and one":      {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) { return s[:1], c[:1] }, []string{"chatcmpl-a"}},
		"two at two times": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) { return s, c }, []string{"chatcmpl-a", "chatcmpl-b"}},
		"two at once, of two agents": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			s[1].Started, s[1].Ended, c[1].Started = s[0].Started, s[0].Ended, c[0].Started
			return s, c
		}, []string{"", ""}},
		"two at once, of one agent": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			s[1].Started, s[1].Ended, c[1].Started, s[1].Agent = s[0].Started, s[0].Ended, c[0].Started, s[0].Agent
			return s, c
		}, []string{"chatcmpl-a", "chatcmpl-b"}},
		"two calls, one of them told": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			c[1].Started = c[0].Started
			return s[:1], c
		}, []string{""}},
		"two spans, one call": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			s[1].Started, s[1].Ended, s[1].Agent = s[0].Started, s[0].Ended, s[0].Agent
			return s, c[:1]
		}, []string{"", ""}},
		"another time": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			c[0].Started = c[0].Started.Add(2 * time.Second)
			return s[:1], c[:1]
		}, []string{""}},
		"another reply": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			c[0].Response = json.RawMessage(`{"choices":[{"message":{"content":"Rivers ran."}}]}`)
			return s[:1], c[:1]
		}, []string{""}},
		"other messages": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			c[0].Request = graph()[3].Request
			return s[:1], c[:1]
		}, []string{""}},
		"other instructions": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			c[0].Request = json.RawMessage(`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"rivers"}]}`)
			return s[:1], c[:1]
		}, []string{""}},
		"a span that failed": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			s[0].Failed = true
			return s[:1], c[:1]
		}, []string{""}},
		"a call that another span names": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			s[1].CallID = "chatcmpl-a"
			return s, c[:1]
		}, []string{"", "chatcmpl-a"}},
		"a request that can't be read": {func(s []record.Span, c []record.Exchange) ([]record.Span, []record.Exchange) {
			c[0].Request = json.RawMessage(`no`)
			return s[:1], c[:1]
		}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s1, c1 := said("1", "writer", 0, 0)
			s2, c2 := said("2", other, 10, 1)
			spans, calls := c.change([]record.Span{s1, s2}, []record.Exchange{c1, c2})
			var got []string
			for _, s := range attribution.Join(calls, attribution.Requests(calls), spans) {
				got = append(got, s.CallID)
			}
			require.Equal(t, c.joined, got)
		})
	}
}
