package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

const (
	hi    = `"messages":[{"role":"user","content":"hi"}]`
	tools = `"tools":[{"type":"function","function":{"name":"f"}},{"function":{"name":"g"}}]`
)

func TestBadChatsAreRefusedByField(t *testing.T) {
	t.Parallel()
	for body, param := range map[string]string{
		`{}`:                          "messages",
		`{"messages":[]}`:             "messages",
		`{"messages":{}}`:             "messages",
		`{"n":0,` + hi + `}`:          "n",
		`{"n":129,` + hi + `}`:        "n",
		`{"n":1.5,` + hi + `}`:        "n",
		`{"max_tokens":0,` + hi + `}`: "max_tokens",
		`{"max_completion_tokens":1.5,"max_tokens":3,` + hi + `}`:                                                          "max_completion_tokens",
		`{"stop":7,` + hi + `}`:                                                                                            "stop",
		`{"stop":["a",7],` + hi + `}`:                                                                                      "stop",
		`{"top_logprobs":-1,` + hi + `}`:                                                                                   "top_logprobs",
		`{"response_format":"json",` + hi + `}`:                                                                            "response_format",
		`{"response_format":{"type":"grammar"},` + hi + `}`:                                                                "response_format.type",
		`{"response_format":{"type":"json_schema","json_schema":{"schema":7}},` + hi + `}`:                                 "response_format.json_schema.schema",
		`{"tool_choice":"required",` + hi + `}`:                                                                            "tool_choice",
		`{"tool_choice":"any",` + tools + `,` + hi + `}`:                                                                   "tool_choice",
		`{"tool_choice":7,` + tools + `,` + hi + `}`:                                                                       "tool_choice",
		`{"tool_choice":{"type":"function","function":{"name":"f"}},` + hi + `}`:                                           "tool_choice",
		`{"tool_choice":{"type":"function","function":{"name":"x"}},` + tools + `,` + hi + `}`:                             "tool_choice",
		`{"tool_choice":{"type":"custom","custom":{"name":"f"}},` + tools + `,` + hi + `}`:                                 "tool_choice",
		`{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}},` + tools + `,` + hi + `}`: "tool_choice",
		`{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"function":{"name":"x"}}]}},` + tools + `,` + hi + `}`: "tool_choice",
		`{"tools":[{"type":"custom","custom":{"name":"x"}}],` + hi + `}`:                                                                        "tools[0].type",
		`{"tools":[{"type":"function","function":{}}],` + hi + `}`:                                                                              "tools[0].function.name",
		`{"functions":[{}],` + hi + `}`:                                                  "functions[0].name",
		`{"function_call":{"name":"x"},` + hi + `}`:                                      "function_call",
		`{"function_call":7,` + hi + `}`:                                                 "function_call",
		`{"messages":[{"role":"user","content":"a"},{"role":"function"}]}`:               "messages[1].role",
		`{"messages":[{"content":"a"}]}`:                                                 "messages[0].role",
		`{"messages":[{"role":7}]}`:                                                      "messages[0].role",
		`{"messages":[null]}`:                                                            "messages[0].role",
		`{"messages":[{"role":"user","content":7}]}`:                                     "messages[0].content",
		`{"messages":[{"role":"user","content":[7]}]}`:                                   "messages[0].content[0]",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`: "messages[0].content[0].type",
		`{"messages":[{"role":"user","tool_calls":[{"id":"x"}]}]}`:                       "messages[0].tool_calls",
		`{"messages":[{"role":"assistant","tool_calls":[{"id":7}]}]}`:                    "messages[0].tool_calls[0].id",
	} {
		f := refused(t, wire.Chat, body)
		require.Equal(t, "invalid_value", f.Code, body)
		require.Equal(t, param, f.Param, body)
	}
}

func TestOddButHarmlessChatsAreRead(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{` + hi + `}`,
		`{"model":null,"n":1,"stream":null,"tools":null,"tool_choice":null,"stop":null,"response_format":null,"functions":null,"function_call":null,"logit_bias":{},` + hi + `}`,
		`{"model":{"odd":1},"max_tokens":null,"temperature":null,"seed":"odd",` + hi + `}`,
		`{"max_completion_tokens":5,"max_tokens":0,` + hi + `}`,
		`{"stop":"","response_format":{"type":"text"},"user":"u",` + hi + `}`,
		`{"tools":[{"type":"function","function":{"name":"g","parameters":null,"strict":true}}],"tool_choice":"none",` + hi + `}`,
		`{"messages":[{"role":"assistant","name":7,"reasoning":{"odd":1},"tool_calls":null,"function_call":null},{"role":"tool","content":null}]}`,
	} {
		r := decode(t, wire.Chat, body)
		require.Empty(t, r.Stop)
		require.Nil(t, r.Format.Schema)
	}
}

func TestPartsOfAChatAreOneText(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Chat, `{"messages":[
		{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"tool_calls":[{"function":{"name":"f","arguments":{"a": 1}}},{"id":"","function":{"name":"f"}}]},
		{"role":"user","content":["a",{"type":"input_text","text":"b"},{"type":"output_text","text":"c"},{"type":"text","text":"d"}]}]}`)
	require.Empty(t, cmp.Diff([]dialog.Message{
		{Role: dialog.Assistant, Content: "no", ToolCalls: []dialog.ToolCall{call("", "f", `{"a": 1}`), call("", "f", "")}},
		{Role: dialog.User, Content: "abcd"},
	}, r.Dialog))
}

func TestTheLongestReplyIsBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1<<31-1, decode(t, wire.Chat, `{"max_tokens":1e300,`+hi+`}`).MaxTokens)
	require.Equal(t, 5, decode(t, wire.Chat, `{"max_tokens":9,"max_completion_tokens":5,`+hi+`}`).MaxTokens)
}

func TestToolChoicesOfChat(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]wire.ToolChoice{
		`"auto"`:     {},
		`"none"`:     {None: true},
		`"required"`: {Required: true},
		`{"type":"function","function":{"name":"g"}}`:                                                                                {Required: true, Names: []string{"g"}},
		`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}`:             {Names: []string{"f"}},
		`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"function":{"name":"g"}},{"function":{"name":"f"}}]}}`: {Required: true, Names: []string{"g", "f"}},
		`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`:                                                        {None: true},
	} {
		r := decode(t, wire.Chat, `{"tool_choice":`+choice+`,`+tools+`,`+hi+`}`)
		require.Empty(t, cmp.Diff(want, r.Choice), choice)
	}
}

func TestFunctionsAreToolsOfWhichOneIsCalled(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]wire.ToolChoice{
		`"auto"`: {}, `"none"`: {None: true}, `{"name":"f"}`: {Required: true, Names: []string{"f"}},
	} {
		r := decode(t, wire.Chat, `{"functions":[{"name":"f","description":"d","parameters":{}}],"function_call":`+choice+`,`+hi+`}`)
		require.Empty(t, cmp.Diff(want, r.Choice), choice)
		require.True(t, r.Serial)
		require.Empty(t, cmp.Diff([]dialog.Tool{{Name: "f", Description: "d", Parameters: []byte(`{}`)}}, r.Tools))
	}
}
