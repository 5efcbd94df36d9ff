package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/wire"
)

// A refusal that quotes an empty text does not say that something is absent.
func TestARefusalSaysWhatIsAbsent(t *testing.T) {
	t.Parallel()
	const tool = `"tools":[{"type":"function","name":"f","function":{"name":"f"},"input_schema":{}}],`
	for api, want := range map[wire.API]map[string]string{
		wire.Chat: {
			`{"messages":[{"content":"a"}]}`:                                            "messages[0].role: the message has no role",
			`{"messages":[{"role":"user","content":[{"text":"a"}]}]}`:                   "messages[0].content[0].type: the part has no type",
			`{` + tool + `"tool_choice":{},"messages":[{"role":"user","content":"a"}]}`: "tool_choice: tool_choice has no type",
		},
		wire.Messages: {
			`{"messages":[{"content":"a"}]}`:                                       "messages[0].role: the message has no role",
			`{"messages":[{"role":"user","content":[{"text":"a"}]}]}`:              "messages[0].content[0].type: the part has no type",
			`{"tool_choice":{},"messages":[{"role":"user","content":"a"}]}`:        "tool_choice.type: tool_choice has no type",
			`{"system":[{"text":"a"}],"messages":[{"role":"user","content":"a"}]}`: "system[0].type: the part has no type",
		},
		wire.Responses: {
			`{"input":[{"content":"a"}]}`:                          "input[0].type: the item has neither a type nor a role",
			`{"input":[{"type":"message","content":"a"}]}`:         "input[0].role: the message has no role",
			`{"input":"a","tools":[{"name":"f"}]}`:                 "tools[0].type: the tool has no type",
			`{` + tool + `"tool_choice":{},"input":"a"}`:           "tool_choice: tool_choice has no type",
			`{"input":[{"role":"user","content":[{"text":"a"}]}]}`: "input[0].content[0].type: the part has no type",
		},
	} {
		for text, says := range want {
			f := refused(t, api, text)
			require.Contains(t, f.Param+": "+f.Message, says, text)
			require.NotContains(t, f.Message, `""`, text)
		}
	}
}
