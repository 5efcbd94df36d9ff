package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

const offered = `"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"type":"custom","name":"g"}]`

func TestBadMessagesAreRefusedByField(t *testing.T) {
	t.Parallel()
	for body, param := range map[string]string{
		`{}`:                          "messages",
		`{"messages":[]}`:             "messages",
		`{"max_tokens":0,` + hi + `}`: "max_tokens",
		`{"system":7,` + hi + `}`:     "system",
		`{"system":[{"type":"image"}],` + hi + `}`:                                                                         "system[0].type",
		`{"stop_sequences":7,` + hi + `}`:                                                                                  "stop_sequences",
		`{"mcp_servers":[{}],` + hi + `}`:                                                                                  "mcp_servers",
		`{"messages":[{"role":"tool"}]}`:                                                                                   "messages[0].role",
		`{"messages":[{"role":"user","content":7}]}`:                                                                       "messages[0].content",
		`{"messages":[{"role":"user","content":[7]}]}`:                                                                     "messages[0].content[0]",
		`{"messages":[{"role":"user","content":[{"type":"text","text":7}]}]}`:                                              "messages[0].content[0]",
		`{"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`:                                          "messages[0].content[0].type",
		`{"messages":[{"role":"user","content":[{"type":"tool_use","name":"f"}]}]}`:                                        "messages[0].content[0].type",
		`{"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}`:                                                "messages[0].content[0].tool_use_id",
		`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]}]}]}`: "messages[0].content[0].content[0].type",
		`{"messages":[{"role":"assistant","content":[{"type":"server_tool_use"}]}]}`:                                       "messages[0].content[0].type",
		`{"messages":[{"role":"assistant","content":[{"type":"tool_use"}]}]}`:                                              "messages[0].content[0].name",
		`{"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":"{}"}]}]}`:                      "messages[0].content[0].input",
		`{"tools":[{"type":"web_search_20260318","name":"web_search"}],` + hi + `}`:                                        "tools[0].type",
		`{"tools":[{"input_schema":{}}],` + hi + `}`:                                                                       "tools[0].name",
		`{"tools":[{"name":"f","input_schema":7}],` + hi + `}`:                                                             "tools[0].input_schema",
		`{"tool_choice":{"type":"any"},` + hi + `}`:                                                                        "tool_choice",
		`{"tool_choice":{"type":"tool","name":"x"},` + offered + `,` + hi + `}`:                                            "tool_choice",
		`{"tool_choice":{"type":"must"},` + hi + `}`:                                                                       "tool_choice.type",
		`{"tool_choice":"auto",` + hi + `}`:                                                                                "tool_choice",
		`{"output_format":{"type":"xml"},` + hi + `}`:                                                                      "output_format.type",
		`{"output_config":{"format":{"type":"json_schema","schema":7}},` + hi + `}`:                                        "output_config.format.schema",
	} {
		f := refused(t, wire.Messages, body)
		require.Equal(t, param, f.Param, body)
	}
}

func TestToolChoicesOfMessages(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]wire.ToolChoice{
		`{"type":"auto"}`: {}, `{"type":"none"}`: {None: true}, `{"type":"any"}`: {Required: true},
		`{"type":"tool","name":"g"}`: {Required: true, Names: []string{"g"}},
	} {
		r := decode(t, wire.Messages, `{"tool_choice":`+choice+`,`+offered+`,`+hi+`}`)
		require.Empty(t, cmp.Diff(want, r.Choice), choice)
		require.False(t, r.Serial)
		require.Empty(t, cmp.Diff([]dialog.Tool{{Name: "f", Description: "d", Parameters: []byte(`{"type":"object"}`)}, {Name: "g"}}, r.Tools))
	}
	require.True(t, decode(t, wire.Messages, `{"tool_choice":{"type":"auto","disable_parallel_tool_use":true},`+offered+`,`+hi+`}`).Serial)
}

func TestSchemasOfMessagesAreRead(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"output_format":{"type":"json_schema","schema":{"type":"object"}},` + hi + `}`,
		`{"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},` + hi + `}`,
	} {
		require.JSONEq(t, `{"type":"object"}`, string(decode(t, wire.Messages, body).Format.Schema))
	}
	require.Nil(t, decode(t, wire.Messages, `{"output_config":{"effort":"low","format":null},`+hi+`}`).Format.Schema)
}

func TestResultsAndTextOfOneMessageAreTurnsInOrder(t *testing.T) {
	t.Parallel()
	result := func(id, text string) dialog.Message {
		return dialog.Message{Role: dialog.ToolReply, ToolCallID: id, Content: text}
	}
	user := func(text string) dialog.Message { return dialog.Message{Role: dialog.User, Content: text} }
	for content, want := range map[string][]dialog.Message{
		`"a"`: {user("a")},
		`""`:  {user("")},
		`[]`:  {user("")},
		`[{"type":"text","text":"a"},{"type":"text","text":"b"}]`:                                                            {user("ab")},
		`[{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"1","content":"x"},{"type":"text","text":"b"}]`:     {user("a"), result("1", "x"), user("b")},
		`[{"type":"tool_result","tool_use_id":"1","is_error":true,"content":"no"},{"type":"tool_result","tool_use_id":"2"}]`: {result("1", "no"), result("2", "")},
	} {
		r := decode(t, wire.Messages, `{"messages":[{"role":"user","content":`+content+`}]}`)
		require.Empty(t, cmp.Diff(want, r.Dialog), content)
	}
	r := decode(t, wire.Messages, `{"messages":[{"role":"assistant","content":[]},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f"}]}]}`)
	require.Empty(t, cmp.Diff([]dialog.Message{
		{Role: dialog.Assistant}, {Role: dialog.Assistant, ToolCalls: []dialog.ToolCall{call("1", "f", `{}`)}},
	}, r.Dialog))
}
