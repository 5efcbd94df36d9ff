package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

const flat = `"tools":[{"type":"function","name":"f","strict":true},{"type":"function","name":"g"}]`

func TestBadResponsesAreRefusedByField(t *testing.T) {
	t.Parallel()
	for body, param := range map[string]string{
		`{}`:                             "input",
		`{"input":null}`:                 "input",
		`{"input":[]}`:                   "input",
		`{"input":7}`:                    "input",
		`{"input":[7]}`:                  "input[0]",
		`{"input":[null]}`:               "input[0]",
		`{"input":[{}]}`:                 "input[0].type",
		`{"input":[{"role":7}]}`:         "input[0]",
		`{"input":[{"role":"tool"}]}`:    "input[0].role",
		`{"input":[{"type":"message"}]}`: "input[0].role",
		`{"input":[{"role":"user","content":7}]}`:                                        "input[0].content",
		`{"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]}`: "input[0].content[0].type",
		`{"input":[{"type":"function_call","arguments":"{}"}]}`:                          "input[0].name",
		`{"input":[{"type":"function_call_output","output":[{"type":"input_file"}]}]}`:   "input[0].output[0].type",
		`{"input":["a"]}`:                                                                "input[0]",
		`{"input":[{"type":"item_reference"}]}`:                                          "input[0].id",
		`{"input":[{"type":"computer_call_output","output":{}}]}`:                        "input[0].type",
		`{"input":"a","tools":[{"type":"web_search"}]}`:                                  "tools[0].type",
		`{"input":"a","tools":[{"type":"function"}]}`:                                    "tools[0].name",
		`{"input":"a","tool_choice":"required"}`:                                         "tool_choice",
		`{"input":"a","tool_choice":{"type":"web_search"},` + flat + `}`:                 "tool_choice",
		`{"input":"a","tool_choice":{"type":"function","name":"x"},` + flat + `}`:        "tool_choice",
		`{"input":"a","text":{"format":{"type":"grammar"}}}`:                             "text.format.type",
		`{"input":"a","text":{"format":{"type":"json_schema","name":"n","schema":"x"}}}`: "text.format.schema",
		`{"input":"a","max_output_tokens":0}`:                                            "max_output_tokens",
		`{"input":"a","instructions":[]}`:                                                "instructions",
		`{"input":"a","previous_response_id":7}`:                                         "previous_response_id",
		`{"input":"a","conversation":"conv_1"}`:                                          "conversation",
		`{"input":"a","prompt":{"id":"pmpt_1"}}`:                                         "prompt",
		`{"input":"a","background":true}`:                                                "background",
		`{"input":"a","include":"all"}`:                                                  "include",
	} {
		f := refused(t, wire.Responses, body)
		require.Equal(t, param, f.Param, body)
	}
	require.Contains(t, refused(t, wire.Responses, `{"input":"a","tools":[{"type":"web_search"}]}`).Message, "web_search")
}

func TestItemsOfOneTurnAreOneMessage(t *testing.T) {
	t.Parallel()
	const (
		think  = `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}]}`
		say    = `{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"so","annotations":[]}]}`
		callF  = `{"type":"function_call","call_id":"1","name":"f","arguments":"{}"}`
		callG  = `{"type":"function_call","call_id":"2","name":"g","arguments":"{}"}`
		answer = `{"type":"function_call_output","call_id":"1","output":"x"}`
	)
	f, g := call("1", "f", `{}`), call("2", "g", `{}`)
	assistant := func(reasoning, content string, calls ...dialog.ToolCall) dialog.Message {
		return dialog.Message{Role: dialog.Assistant, Reasoning: reasoning, Content: content, ToolCalls: calls}
	}
	result := dialog.Message{Role: dialog.ToolReply, ToolCallID: "1", Content: "x"}
	for items, want := range map[string][]dialog.Message{
		think + `,` + say + `,` + callF + `,` + callG:     {assistant("hm", "so", f, g)},
		say + `,` + think + `,` + callF:                   {assistant("hm", "so", f)},
		think + `,` + think + `,` + say:                   {assistant("hmhm", "so")},
		say + `,` + say:                                   {assistant("", "so"), assistant("", "so")},
		think + `,` + say + `,` + think + `,` + say:       {assistant("hm", "so"), assistant("hm", "so")},
		callF + `,` + say:                                 {assistant("", "", f), assistant("", "so")},
		callF + `,` + think + `,` + callG:                 {assistant("", "", f), assistant("hm", "", g)},
		callF + `,` + answer + `,` + callG:                {assistant("", "", f), result, assistant("", "", g)},
		think + `,` + callF + `,` + answer + `,` + answer: {assistant("hm", "", f), result, result},
		say + `,{"role":"user","content":"go on"},` + say: {assistant("", "so"), {Role: dialog.User, Content: "go on"}, assistant("", "so")},
		`{"role":"assistant","content":""},` + say:        {assistant("", ""), assistant("", "so")},
		`{"role":"developer","content":"d"},` + callF:     {{Role: dialog.System, Content: "d"}, assistant("", "", f)},
	} {
		r := decode(t, wire.Responses, `{"input":[`+items+`]}`)
		require.Empty(t, cmp.Diff(want, r.Dialog), items)
	}
}

func TestToolChoicesOfResponses(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]wire.ToolChoice{
		`"auto"`: {}, `"none"`: {None: true}, `"required"`: {Required: true},
		`{"type":"function","name":"g"}`: {Required: true, Names: []string{"g"}},
		`{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`:     {Names: []string{"f"}},
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]}`: {Required: true, Names: []string{"f"}},
	} {
		r := decode(t, wire.Responses, `{"input":"a","parallel_tool_calls":false,"tool_choice":`+choice+`,`+flat+`}`)
		require.Empty(t, cmp.Diff(want, r.Choice), choice)
		require.True(t, r.Serial)
	}
}

func TestItemsThatAreReferredToAreRecalled(t *testing.T) {
	t.Parallel()
	said := dialog.Message{
		Role: dialog.Assistant, Content: "so", Reasoning: "hm",
		ToolCalls: []dialog.ToolCall{call("call_1f_0", "f", `{"a":1}`), call("call_1f_1", "g", `{}`)},
	}
	recall := func(reply string) (dialog.Message, bool) { return said, reply == "resp_1f" }
	const user = `{"role":"user","content":"hi"}`
	for items, want := range map[string]dialog.Message{
		`{"type":"item_reference","id":"msg_1f"}`: {Role: dialog.Assistant, Content: "so"},
		`{"id":"msg_1f"}`:                         {Role: dialog.Assistant, Content: "so"},
		`{"type":"item_reference","id":"rs_1f"},{"type":"item_reference","id":"msg_1f"},
		 {"type":"item_reference","id":"fc_1f_0"},{"type":"item_reference","id":"fc_1f_1"}`: said,
		`{"type":"item_reference","id":"rs_1f"},{"type":"function_call","call_id":"call_1f_0","name":"f","arguments":"{}"}`: {
			Role: dialog.Assistant, Reasoning: "hm", ToolCalls: []dialog.ToolCall{call("call_1f_0", "f", `{}`)},
		},
	} {
		r := decode(t, wire.Responses, `{"instructions":"i","input":[`+user+`,`+items+`,`+user+`]}`)
		require.NotEmpty(t, r.References)
		require.NoError(t, r.ResolveItems(recall))
		require.Empty(t, r.References)
		hi := dialog.Message{Role: dialog.User, Content: "hi"}
		require.Empty(t, cmp.Diff([]dialog.Message{{Role: dialog.System, Content: "i"}, hi, want, hi}, r.Dialog), items)
		require.NoError(t, r.ResolveItems(nil), "what was recalled is not asked for again")
	}
	for _, id := range []string{"msg_2", "msg", "resp_1f", "fc_1f_2", "fc_1f_x", "fc_1f", "fc_", "fc", "item_1f_0"} {
		r := decode(t, wire.Responses, `{"input":[`+user+`,{"type":"item_reference","id":"`+id+`"}]}`)
		require.Equal(t, []string{id}, r.References)
		var f *wire.Failure
		require.ErrorAs(t, r.ResolveItems(recall), &f, id)
		require.Equal(t, "input[1].id", f.Param)
	}
	require.NoError(t, decode(t, wire.Responses, `{"input":"hi"}`).ResolveItems(nil))
	said.Reasoning = ""
	require.Error(t, decode(t, wire.Responses, `{"input":[{"type":"item_reference","id":"rs_1f"}]}`).ResolveItems(recall), "nothing was thought")
}
