package otlp_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/gateway/otlp"
	"github.com/fulgurite/fulgurite/record"
)

var (
	traceID = []byte("0123456789abcdef")
	noon    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

const (
	traceHex = "30313233343536373839616263646566"
	replyID  = "chatcmpl-0123456789abcdef01234567"
)

func attribute(name string, v any) *common.KeyValue {
	out := &common.AnyValue{}
	switch v := v.(type) {
	case string:
		out.Value = &common.AnyValue_StringValue{StringValue: v}
	case float64:
		out.Value = &common.AnyValue_DoubleValue{DoubleValue: v}
	case int:
		out.Value = &common.AnyValue_IntValue{IntValue: int64(v)}
	case bool:
		out.Value = &common.AnyValue_BoolValue{BoolValue: v}
	default:
		panic(fmt.Sprintf("%T", v))
	}
	return &common.KeyValue{Key: name, Value: out}
}

func attributes(pairs ...any) []*common.KeyValue {
	var out []*common.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, attribute(pairs[i].(string), pairs[i+1]))
	}
	return out
}

func span(id string, pairs ...any) *tracepb.Span {
	return &tracepb.Span{
		TraceId: traceID, SpanId: []byte(id), Name: "span " + id, Attributes: attributes(pairs...),
		StartTimeUnixNano: uint64(noon.UnixNano()), EndTimeUnixNano: uint64(noon.Add(time.Second).UnixNano()),
	}
}

func export(spans ...*tracepb.Span) *collector.ExportTraceServiceRequest {
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:   &resource.Resource{Attributes: attributes("service.name", "agent", otlp.RolloutAttribute, "demo/train-1/0/0/1")},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}}}
}

func decode(t *testing.T, spans ...*tracepb.Span) otlp.Batch {
	t.Helper()
	body, err := proto.Marshal(export(spans...))
	require.NoError(t, err)
	b, err := otlp.Protobuf.Decode(body)
	require.NoError(t, err)
	return b
}

func TestBothEncodingsSayTheSame(t *testing.T) {
	t.Parallel()
	s := span("12345678", "gen_ai.operation.name", "chat", "gen_ai.response.id", replyID, "gen_ai.usage.input_tokens", 7, "llm.is_streaming", true)
	s.ParentSpanId = []byte("abcdefgh")
	request := export(s)
	inProtobuf, err := proto.Marshal(request)
	require.NoError(t, err)
	inJSON, err := protojson.Marshal(request)
	require.NoError(t, err)
	// As exporters write it: the bytes of ids in hex.
	text := string(inJSON)
	for base64, hex := range map[string]string{
		"MDEyMzQ1Njc4OWFiY2RlZg==": traceHex, "MTIzNDU2Nzg=": "3132333435363738", "YWJjZGVmZ2g=": "6162636465666768",
	} {
		require.Contains(t, text, base64)
		text = strings.ReplaceAll(text, base64, hex)
	}
	want := otlp.Batch{Rollout: "demo/train-1/0/0/1", Spans: []record.Span{{
		Trace: traceHex, ID: "3132333435363738", Parent: "6162636465666768", Kind: record.ModelSpan, Name: "span 12345678",
		Started: noon, Ended: noon.Add(time.Second), CallID: replyID,
		Attributes: map[string]any{"gen_ai.operation.name": "chat", "gen_ai.response.id": replyID, "gen_ai.usage.input_tokens": 7.0, "llm.is_streaming": true},
	}}}
	got, err := otlp.Protobuf.Decode(inProtobuf)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got))
	got, err = otlp.JSON.Decode([]byte(text))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got))
}

func TestEachConventionIsUnderstood(t *testing.T) {
	t.Parallel()
	type described struct {
		Kind                          record.SpanKind
		Call, Agent, Tool, ToolCallID string
	}
	for name, c := range map[string]struct {
		attributes []any
		want       described
	}{
		"GenAI, model": {
			[]any{"gen_ai.operation.name", "chat", "gen_ai.response.id", replyID, "gen_ai.agent.name", "writer"},
			described{Kind: record.ModelSpan, Call: replyID, Agent: "writer"},
		},
		"GenAI, tool": {
			[]any{"gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", "calculator", "gen_ai.tool.call.id", "call_1"},
			described{Kind: record.ToolSpan, Tool: "calculator", ToolCallID: "call_1"},
		},
		"GenAI, agent": {[]any{"gen_ai.operation.name", "invoke_agent", "gen_ai.agent.name", "triage"}, described{Kind: record.AgentSpan, Agent: "triage"}},
		"OpenInference, model in a graph": {
			[]any{"openinference.span.kind", "LLM", "metadata", `{"langgraph_node":"checker","langgraph_step":2}`, "output.value", `{"generations":[[{"message":{"kwargs":{"response_metadata":{"id":"` + replyID + `"}}}}]]}`},
			described{Kind: record.ModelSpan, Call: replyID, Agent: "checker"},
		},
		"OpenInference, agent quotes a reply": {
			[]any{"openinference.span.kind", "CHAIN", "output.value", `{"id":"` + replyID + `"}`}, described{Kind: record.AgentSpan},
		},
		"OpenInference, result": {
			[]any{"openinference.span.kind", "TOOL", "tool.name", "search", "output.value", `{"data":{"tool_call_id":"call_0123456789abcdef01234567_1"}}`},
			described{Kind: record.ToolSpan, Tool: "search", ToolCallID: "call_0123456789abcdef01234567_1"},
		},
		"OpenLLMetry, result": {
			[]any{"gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", "search", "gen_ai.tool.call.result", `{"tool_call_id":"call_0123456789abcdef01234567_0"}`},
			described{Kind: record.ToolSpan, Tool: "search", ToolCallID: "call_0123456789abcdef01234567_0"},
		},
		"several results": {
			[]any{"openinference.span.kind", "TOOL", "tool.name", "all", "output.value", `["call_0123456789abcdef01234567_0","call_0123456789abcdef01234567_1"]`},
			described{Kind: record.ToolSpan, Tool: "all"},
		},
		"OpenInference, tool": {[]any{"openinference.span.kind", "TOOL", "tool.name", "search"}, described{Kind: record.ToolSpan, Tool: "search"}},
		"Traceloop, model":    {[]any{"llm.request.type", "chat", "gen_ai.response.id", "msg_0123456789abcdef01234567"}, described{Kind: record.ModelSpan, Call: "msg_0123456789abcdef01234567"}},
		"Traceloop, tool":     {[]any{"traceloop.span.kind", "tool", "traceloop.entity.name", "fetch"}, described{Kind: record.ToolSpan, Tool: "fetch"}},
		"AI SDK, model":       {[]any{"ai.operationId", "ai.generateText.doGenerate", "ai.response.id", "resp_0123456789abcdef01234567", "ai.telemetry.functionId", "answer"}, described{Kind: record.ModelSpan, Call: "resp_0123456789abcdef01234567", Agent: "answer"}},
		"AI SDK, tool":        {[]any{"ai.operationId", "ai.toolCall", "ai.toolCall.name", "calc", "ai.toolCall.id", "call_2"}, described{Kind: record.ToolSpan, Tool: "calc", ToolCallID: "call_2"}},
		"no convention":       {[]any{"http.method", "GET"}, described{Kind: record.OtherSpan}},
		"a reply of others":   {[]any{"gen_ai.operation.name", "chat", "gen_ai.response.id", "chatcmpl-abc"}, described{Kind: record.ModelSpan}},
		"a tool without name": {[]any{"gen_ai.operation.name", "execute_tool"}, described{Kind: record.ToolSpan, Tool: "span 12345678"}},
	} {
		s := decode(t, span("12345678", c.attributes...)).Spans[0]
		require.Equal(t, c.want, described{s.Kind, s.CallID, s.Agent, s.Tool, s.ToolCallID}, name)
	}
}

func TestErrorsAreToldHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	status := span("12345678")
	status.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "no route"}
	raised := span("12345678")
	raised.Events = []*tracepb.Span_Event{{Name: "exception", Attributes: attributes("exception.type", "ValueError", "exception.message", "too hot")}}
	for want, s := range map[string]*tracepb.Span{"no route": status, "ValueError: too hot": raised, "timeout": span("12345678", "error.type", "timeout")} {
		got := decode(t, s).Spans[0]
		require.True(t, got.Failed)
		require.Equal(t, want, got.Message)
	}
	require.False(t, decode(t, span("12345678")).Spans[0].Failed)
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	s := span("12345678", "llm.input_messages.0.message.content", "the dialog", "gen_ai.prompt.0.content", "again", "long", strings.Repeat("é", 10_000))
	for i := range 200 {
		s.Attributes = append(s.Attributes, attribute(fmt.Sprintf("x%03d", i), i))
	}
	s.Name = strings.Repeat("n", 1000)
	got := decode(t, s).Spans[0]
	require.Len(t, got.Attributes, 64)
	require.NotContains(t, got.Attributes, "llm.input_messages.0.message.content")
	require.NotContains(t, got.Attributes, "gen_ai.prompt.0.content")
	require.Len(t, got.Attributes["long"], 4096)
	require.Len(t, got.Name, 256)
}

func TestRewardsOfSpans(t *testing.T) {
	t.Parallel()
	reward := func(name string, v float64) otlp.Reward {
		return otlp.Reward{Reward: record.Reward{Name: name, Value: v, Source: "agent"}}
	}
	at := func(r otlp.Reward) otlp.Reward {
		r.Emitted = decode(t, span("12345678")).Spans[0].Started
		return r
	}
	of := func(call string, r otlp.Reward) otlp.Reward {
		r.CallID = call
		return r
	}
	refused := func(why string, r otlp.Reward) otlp.Reward {
		r.Refusal = why
		return r
	}
	emitted := span("12345678", "reward", 0.5)
	emitted.Name = "agentlightning.annotation"
	const first, second = "agentlightning.reward.0.", "agentlightning.reward.1."
	const link = "agentlightning.link.0."
	for name, c := range map[string]struct {
		span *tracepb.Span
		want []otlp.Reward
	}{
		"ours":            {span("12345678", "fulgurite.reward", 0.25), []otlp.Reward{reward("final", 0.25)}},
		"ours, named":     {span("12345678", "fulgurite.reward", 1, "fulgurite.reward.name", "style"), []otlp.Reward{reward("style", 1)}},
		"ours, no number": {span("12345678", "fulgurite.reward", true), []otlp.Reward{refused("fulgurite.reward is true: want a finite number", reward("final", 0))}},
		"emitted, many":   {span("12345678", first+"name", "primary", first+"value", "0.85", second+"name", "style", second+"value", 2.0), []otlp.Reward{at(reward("final", 0.85)), at(reward("style", 2))}},
		"emitted, its own primary": {span("12345678", first+"name", "task_completion", first+"value", 1.0, second+"name", "style", second+"value", 2.0),
			[]otlp.Reward{at(reward("final", 1)), at(reward("task_completion", 1)), at(reward("style", 2))}},
		"emitted, a final elsewhere": {span("12345678", first+"name", "style", first+"value", 1.0, second+"name", "final", second+"value", 2.0),
			[]otlp.Reward{at(reward("style", 1)), at(reward("final", 2))}},
		"emitted, without a name": {span("12345678", first+"value", 1.0), []otlp.Reward{at(reward("final", 1))}},
		"emitted, true":           {span("12345678", first+"name", "primary", first+"value", true), []otlp.Reward{at(reward("final", 1))}},
		"emitted, no number":      {span("12345678", first+"name", "primary", first+"value", "good"), []otlp.Reward{at(refused("agentlightning.reward.0.value is good: want a finite number", reward("final", 0)))}},
		"emitted, of a call": {span("12345678", first+"name", "primary", first+"value", 0.5, link+"key_match", "gen_ai.response.id", link+"value_match", replyID),
			[]otlp.Reward{at(of(replyID, reward("final", 0.5)))}},
		"emitted, of something else": {span("12345678", first+"name", "primary", first+"value", 0.5, link+"key_match", "span_id", link+"value_match", "00f067aa0ba902b7"),
			[]otlp.Reward{at(refused(`its link "span_id" = "00f067aa0ba902b7" names no reply: link gen_ai.response.id`, reward("final", 0.5)))}},
		"emitted, old":        {emitted, []otlp.Reward{at(reward("final", 0.5))}},
		"emitted, very old":   {span("12345678", "agentops.task.output", `{"type": "reward", "value": 0.5}`), []otlp.Reward{at(reward("final", 0.5))}},
		"an output of a task": {span("12345678", "agentops.task.output", `{"answer": 42}`), nil},
		"somebody else's":     {span("12345678", "reward", 0.5), nil},
		"no number":           {span("12345678", "fulgurite.reward", "NaN"), []otlp.Reward{refused("fulgurite.reward is NaN: want a finite number", reward("final", 0))}},
	} {
		require.Empty(t, cmp.Diff(c.want, decode(t, c.span).Rewards), name)
	}
	judged := decode(t, span("12345678", "fulgurite.reward", 1, "gen_ai.response.id", replyID))
	require.Equal(t, replyID, judged.Rewards[0].CallID)
}

func TestManyEventsOfALargeSpanAreReadOnce(t *testing.T) {
	t.Parallel()
	large := span("12345678")
	for i := range 20_000 {
		large.Attributes = append(large.Attributes, attribute(fmt.Sprint("a", i), "x"))
	}
	for range 10_000 {
		large.Events = append(large.Events, &tracepb.Span_Event{Name: otlp.EvaluationEvent})
	}
	require.Len(t, decode(t, large).Evaluations, 10_000) // it would take minutes if each event read the span
	large.Events = append(large.Events, &tracepb.Span_Event{Name: otlp.EvaluationEvent})
	body, err := proto.Marshal(export(large))
	require.NoError(t, err)
	_, err = otlp.Protobuf.Decode(body)
	require.ErrorIs(t, err, otlp.ErrMalformed)
}

func TestExportsThatCannotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	short := span("1")
	two := export(span("12345678"))
	two.ResourceSpans = append(two.ResourceSpans, &tracepb.ResourceSpans{Resource: &resource.Resource{Attributes: attributes(otlp.RolloutAttribute, "another")}})
	for want, m := range map[string]proto.Message{"span id of 1": export(short), "speaks of": two} {
		body, err := proto.Marshal(m)
		require.NoError(t, err)
		_, err = otlp.Protobuf.Decode(body)
		require.ErrorIs(t, err, otlp.ErrMalformed)
		require.ErrorContains(t, err, want)
	}
	for _, body := range []string{"", "{", "[]", `{"resourceSpans":1}`, `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":5}]}]}]}`, `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xyz"}]}]}]}`, "{} {}"} {
		_, err := otlp.JSON.Decode([]byte(body))
		require.ErrorIs(t, err, otlp.ErrMalformed, body)
	}
	_, err := otlp.Protobuf.Decode([]byte("garbage"))
	require.ErrorIs(t, err, otlp.ErrMalformed)
	for kind, want := range map[string]otlp.Encoding{
		"application/x-protobuf": otlp.Protobuf, "application/protobuf": otlp.Protobuf, "application/json; charset=utf-8": otlp.JSON,
	} {
		got, err := otlp.EncodingOf(kind)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = otlp.EncodingOf("text/plain")
	require.Error(t, err)
}

func TestRepliesAreThoseOfTheProtocol(t *testing.T) {
	t.Parallel()
	var all collector.ExportTraceServiceResponse
	require.NoError(t, proto.Unmarshal(otlp.Protobuf.Reply(0, ""), &all))
	require.Nil(t, all.GetPartialSuccess())
	var some struct {
		PartialSuccess struct{ RejectedSpans, ErrorMessage string }
	}
	require.NoError(t, json.Unmarshal(otlp.JSON.Reply(2, "graded"), &some))
	require.Equal(t, "2", some.PartialSuccess.RejectedSpans)
	require.Equal(t, "graded", some.PartialSuccess.ErrorMessage)
	var failure rpc.Status
	require.NoError(t, proto.Unmarshal(otlp.Protobuf.Failure(codes.PermissionDenied, "no"), &failure))
	require.Equal(t, int32(codes.PermissionDenied), failure.GetCode())
}

func FuzzExports(f *testing.F) {
	body, err := proto.Marshal(export(span("12345678", "fulgurite.reward", 1, "gen_ai.response.id", replyID)))
	require.NoError(f, err)
	f.Add(body, false)
	f.Add([]byte(`{"resourceSpans":[{"resource":{"attributes":[{"key":"fulgurite.rollout","value":{"stringValue":"a"}}]},"scopeSpans":[{"spans":[{"traceId":"`+traceHex+`","spanId":"3132333435363738","name":"x","startTimeUnixNano":"1","attributes":[{"key":"a","value":{"kvlistValue":{"values":[{"key":"b","value":{"arrayValue":{"values":[{"doubleValue":"NaN"}]}}}]}}}]}]}]}]}`), true)
	f.Fuzz(func(t *testing.T, body []byte, inJSON bool) {
		encoding := otlp.Protobuf
		if inJSON {
			encoding = otlp.JSON
		}
		b, err := encoding.Decode(body)
		if err != nil {
			require.ErrorIs(t, err, otlp.ErrMalformed)
			return
		}
		for _, s := range b.Spans {
			require.Len(t, s.Trace, 32)
			require.Len(t, s.ID, 16)
			_, err := json.Marshal(s) // it can be recorded
			require.NoError(t, err)
		}
	})
}
