package otlp_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
)

func TestADialogIsReadAlikeByEveryConvention(t *testing.T) {
	t.Parallel()
	said := []dialog.Message{
		{Role: dialog.User, Content: "go on"},
		{Role: dialog.Assistant, ToolCalls: []dialog.ToolCall{{ID: "call_1", Function: dialog.Function{Name: "add"}}}},
		{Role: dialog.ToolReply, ToolCallID: "call_1", Content: "2"},
	}
	want := map[string]string{
		record.InstructionsFingerprint: dialog.Fingerprint([]dialog.Message{{Role: dialog.System, Content: "Be brief."}}),
		record.DialogFingerprint:       dialog.Fingerprint(said),
		record.ReplyFingerprint:        dialog.Fingerprint([]dialog.Message{{Role: dialog.Assistant, Content: "two"}}),
	}
	for name, s := range map[string]*tracepb.Span{
		"OpenTelemetry": span("12345678", "gen_ai.operation.name", "chat", "gen_ai.system_instructions", `[{"type":"text","content":"Be brief."}]`,
			"gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"go on"}]},{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"add","arguments":{}}]},
				{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":"2"}]}]`,
			"gen_ai.output.messages", `[{"role":"assistant","parts":[{"type":"reasoning","content":"hm"},{"type":"text","content":"two"}]}]`),
		"OpenInference": span("12345678", "openinference.span.kind", "LLM",
			"llm.input_messages.0.message.role", "system", "llm.input_messages.0.message.content", "Be brief.",
			"llm.input_messages.1.message.role", "user", "llm.input_messages.1.message.contents.0.message_content.type", "text",
			"llm.input_messages.1.message.contents.0.message_content.text", "go on",
			"llm.input_messages.2.message.role", "assistant", "llm.input_messages.2.message.tool_calls.0.tool_call.id", "call_1",
			"llm.input_messages.2.message.tool_calls.0.tool_call.function.name", "add",
			"llm.input_messages.3.message.role", "tool", "llm.input_messages.3.message.content", "2", "llm.input_messages.3.message.tool_call_id", "call_1",
			"llm.output_messages.0.message.role", "assistant", "llm.output_messages.0.message.content", "two"),
		"OpenLLMetry's older names": span("12345678", "llm.request.type", "chat",
			"gen_ai.prompt.0.role", "system", "gen_ai.prompt.0.content", "Be brief.", "gen_ai.prompt.1.role", "user", "gen_ai.prompt.1.content", "go on",
			"gen_ai.prompt.2.role", "assistant", "gen_ai.prompt.2.tool_calls.0.id", "call_1", "gen_ai.prompt.2.tool_calls.0.name", "add",
			"gen_ai.prompt.3.role", "tool", "gen_ai.prompt.3.content", "2", "gen_ai.prompt.3.tool_call_id", "call_1",
			"gen_ai.completion.0.role", "assistant", "gen_ai.completion.0.content", "two"),
	} {
		got := decode(t, s).Spans[0]
		for key, fingerprint := range want {
			require.Equal(t, fingerprint, got.Attributes[key], "%s: %s", name, key)
		}
	}
}

func TestADialogThatIsNotReadWholeIsNotTold(t *testing.T) {
	t.Parallel()
	reply := []any{"llm.output_messages.0.message.role", "assistant", "llm.output_messages.0.message.content", "two"}
	asked := []any{"llm.input_messages.0.message.role", "user", "llm.input_messages.0.message.content", "go on"}
	kind := []any{"openinference.span.kind", "LLM"}
	all := func(parts ...[]any) []any {
		var out []any
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for name, pairs := range map[string][]any{
		"no reply":        all(kind, asked),
		"no messages":     all(kind, reply),
		"an image":        all(kind, asked, reply, []any{"llm.input_messages.0.message.contents.0.message_content.type", "image"}),
		"a gap":           all(kind, reply, asked, []any{"llm.input_messages.2.message.role", "user"}),
		"no role known":   all(kind, reply, []any{"llm.input_messages.0.message.role", "oracle"}),
		"no model call":   all([]any{"openinference.span.kind", "CHAIN"}, asked, reply),
		"a reply of ours": all(kind, asked, reply, []any{"gen_ai.response.id", replyID}),
		"a claim":         all([]any{"openinference.span.kind", "CHAIN", record.DialogFingerprint, "a", record.ReplyFingerprint, "b", record.InstructionsFingerprint, "c"}),
		"broken JSON":     {"gen_ai.operation.name", "chat", "gen_ai.input.messages", "[", "gen_ai.output.messages", "[]"},
		"parts of images": {"gen_ai.operation.name", "chat", "gen_ai.input.messages", `[{"role":"user","parts":[{"type":"blob"}]}]`, "gen_ai.output.messages", "[]"},
	} {
		got := decode(t, span("12345678", pairs...)).Spans[0]
		for _, key := range []string{record.InstructionsFingerprint, record.DialogFingerprint, record.ReplyFingerprint} {
			require.NotContains(t, got.Attributes, key, name)
		}
	}
}
