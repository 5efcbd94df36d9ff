package dialog_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

var (
	calculator = dialog.Tool{Name: "calculator", Parameters: json.RawMessage(
		`{"type":"object","properties":{"expression":{"type":"string"}},"required":["expression"]}`)}
	search = dialog.Tool{Name: "search", Parameters: json.RawMessage(
		`{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}},"required":["query"]}`)}
)

func numbered(k int) string { return fmt.Sprintf("call_%d", k) }

func called(name, arguments string) []dialog.ToolCall {
	return []dialog.ToolCall{{ID: "call_0", Type: "function", Function: dialog.Function{Name: name, Arguments: arguments}}}
}

func encode(text string) []int32 { return tokenizer.Bytes{}.Encode(text) }

func join(parts ...any) []int32 {
	var ids []int32
	for _, p := range parts {
		switch p := p.(type) {
		case int32:
			ids = append(ids, p)
		case string:
			ids = append(ids, encode(p)...)
		case []int32:
			ids = append(ids, p...)
		}
	}
	return ids
}

func TestTheCalculatorDialogIsShort(t *testing.T) {
	t.Parallel()
	c, tools := dialog.Compact(), []dialog.Tool{calculator}
	messages := []dialog.Message{
		{Role: dialog.User, Content: "123+456*7"},
		{Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":"123+456*7"}`)},
		{Role: dialog.ToolReply, Content: "3315", ToolCallID: "call_0"},
	}
	ids, err := c.Prompt(messages, tools)
	require.NoError(t, err)
	require.Equal(t, "<user>123+456*7<end><assistant><call>123+456*7<end><tool>3315<end><assistant>", c.Text(ids))
	require.Less(t, len(ids)+len("3315")+1, 64)
}

func TestSeveralToolsAreListedAndNamed(t *testing.T) {
	t.Parallel()
	c, tools := dialog.Compact(), []dialog.Tool{calculator, search}
	ids, err := c.Prompt([]dialog.Message{
		{Role: "developer", Content: "Be brief."},
		{Role: dialog.User, Content: "?"},
		{Role: dialog.Assistant, Content: "so", ToolCalls: append(called("calculator", `{"expression":"1+1"}`), called("search", `{"query":"x"}`)...)},
		{Role: dialog.ToolReply, Content: "2"},
		{Role: dialog.ToolReply, Content: ""},
	}, tools)
	require.NoError(t, err)
	require.Equal(t, `<tools>calculator<arg>search<end><system>Be brief.<end><user>?<end>`+
		`<assistant>so<call>calculator<arg>1+1<call>search<arg>{"query":"x"}<end><tool>2<end><tool><end><assistant>`, c.Text(ids))
}

func TestParseReadsCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tools      []dialog.Tool
		completion []int32
		want       dialog.Message
	}{
		"the sole tool by its text": {
			[]dialog.Tool{calculator}, join(tokenizer.ToolCall, "12+7*3", tokenizer.End),
			dialog.Message{Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":"12+7*3"}`)},
		},
		"the sole tool by its name": {
			[]dialog.Tool{calculator}, join(tokenizer.ToolCall, "calculator", tokenizer.Argument, "1", tokenizer.End),
			dialog.Message{Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":"1"}`)},
		},
		"content before a call": {
			[]dialog.Tool{search}, join("well", tokenizer.ToolCall, `{"query": "a<b"}`, tokenizer.End),
			dialog.Message{Role: dialog.Assistant, Content: "well", ToolCalls: called("search", `{"query": "a<b"}`)},
		},
		"one of several": {
			[]dialog.Tool{calculator, search}, join(tokenizer.ToolCall, "calculator", tokenizer.Argument, `"<>`, tokenizer.End),
			dialog.Message{Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":"\"<>"}`)},
		},
		"no call at all": {
			[]dialog.Tool{calculator}, join("42", tokenizer.End),
			dialog.Message{Role: dialog.Assistant, Content: "42"},
		},
		"a reply cut off": {nil, encode("4"), dialog.Message{Role: dialog.Assistant, Content: "4"}},
		"nothing":         {nil, nil, dialog.Message{Role: dialog.Assistant}},
		"what follows the end is not read": {
			nil, join("4", tokenizer.End, "2", tokenizer.ToolCall),
			dialog.Message{Role: dialog.Assistant, Content: "4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problem := dialog.Compact().Parse(c.completion, c.tools, numbered)
			require.Empty(t, problem)
			require.Empty(t, cmp.Diff(c.want, got))
		})
	}
}

func TestSeveralCallsAreNumbered(t *testing.T) {
	t.Parallel()
	got, problem := dialog.Compact().Parse(join(tokenizer.ToolCall, "1", tokenizer.ToolCall, "2", tokenizer.End), []dialog.Tool{calculator}, numbered)
	require.Empty(t, problem)
	require.Len(t, got.ToolCalls, 2)
	require.Equal(t, dialog.ToolCall{ID: "call_1", Type: "function", Function: dialog.Function{Name: "calculator", Arguments: `{"expression":"2"}`}}, got.ToolCalls[1])
}

func TestWhatIsNotACallStaysText(t *testing.T) {
	t.Parallel()
	one, two := []dialog.Tool{search}, []dialog.Tool{calculator, search}
	for name, c := range map[string]struct {
		tools         []dialog.Tool
		completion    []int32
		text, problem string
	}{
		"bad JSON":           {one, join(tokenizer.ToolCall, `{"query":`, tokenizer.End), `<call>{"query":`, `arguments of "search" are not a JSON object`},
		"JSON of no object":  {one, join(tokenizer.ToolCall, `[1]`, tokenizer.End), `<call>[1]`, `arguments of "search" are not a JSON object`},
		"no arguments":       {one, join(tokenizer.ToolCall, tokenizer.End), `<call>`, `arguments of "search" are not a JSON object`},
		"no tool offered":    {nil, join(tokenizer.ToolCall, "1", tokenizer.End), "<call>1", "tool call, but no tool is offered"},
		"unknown tool":       {two, join(tokenizer.ToolCall, "run", tokenizer.Argument, "1", tokenizer.End), "<call>run<arg>1", `call of the unknown tool "run"`},
		"no name":            {two, join(tokenizer.ToolCall, "1+1", tokenizer.End), "<call>1+1", "tool call without the tool's name"},
		"cut off":            {one, join(tokenizer.ToolCall, `{}`), "<call>{}", "tool call cut off before its end"},
		"one bad of two":     {one, join("a", tokenizer.ToolCall, `{}`, tokenizer.ToolCall, `{`, tokenizer.End), "a<call>{}<call>{", `arguments of "search" are not a JSON object`},
		"role in content":    {one, join("a", tokenizer.User, "b", tokenizer.End), "a<user>b", "<user> out of place"},
		"role in argument":   {one, join(tokenizer.ToolCall, "{}", tokenizer.Pad, tokenizer.End), "<call>{}<pad>", "<pad> out of place"},
		"role in name":       {two, join(tokenizer.ToolCall, "search", tokenizer.Pad, tokenizer.Argument, "{}", tokenizer.End), "<call>search<pad><arg>{}", "<pad> out of place"},
		"argument separator": {one, join("a", tokenizer.Argument, tokenizer.End), "a<arg>", "<arg> out of place"},
		"unknown id":         {nil, join("a", int32(999), tokenizer.End), "a<999?>", "<999?> out of place"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problem := dialog.Compact().Parse(c.completion, c.tools, numbered)
			require.Equal(t, c.problem, problem)
			require.Empty(t, cmp.Diff(dialog.Message{Role: dialog.Assistant, Content: c.text}, got))
		})
	}
}

func TestInvalidUTF8IsShownAsReplacement(t *testing.T) {
	t.Parallel()
	got, problem := dialog.Compact().Parse(join("a\xff", tokenizer.ToolCall, "\xe2\x82", tokenizer.End), []dialog.Tool{calculator}, numbered)
	require.Empty(t, problem)
	require.Equal(t, "a\uFFFD", got.Content)
	require.Equal(t, `{"expression":"`+"\uFFFD"+`"}`, got.ToolCalls[0].Function.Arguments)
}

func TestArbitraryTokensNeverYieldBadArguments(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tools := drawTools(t)
		token := rapid.OneOf(rapid.Int32Range(0, 31), rapid.Int32Range(-1, 300), rapid.Just(tokenizer.ToolCall))
		got, problem := dialog.Compact().Parse(rapid.SliceOf(token).Draw(t, "completion"), tools, numbered)
		require.True(t, utf8.ValidString(got.Content))
		require.True(t, problem == "" || len(got.ToolCalls) == 0)
		for _, call := range got.ToolCalls {
			var object map[string]any
			require.NoError(t, json.Unmarshal([]byte(call.Function.Arguments), &object))
			require.True(t, utf8.ValidString(call.Function.Arguments))
		}
	})
}

func drawTools(t *rapid.T) []dialog.Tool {
	return rapid.SampledFrom([][]dialog.Tool{nil, {calculator}, {search}, {calculator, search}}).Draw(t, "tools")
}

// drawReply draws a message that the codec could have parsed.
func drawReply(t *rapid.T, tools []dialog.Tool) dialog.Message {
	m := dialog.Message{Role: dialog.Assistant, Content: rapid.String().Draw(t, "content")}
	if len(tools) == 0 {
		return m
	}
	for k := range rapid.IntRange(0, 2).Draw(t, "calls") {
		tool := rapid.SampledFrom(tools).Draw(t, "tool")
		var arguments []byte
		switch tool.Name {
		case "calculator":
			// The codec writes the object itself, in Go's own form but without HTML escapes.
			arguments = fmt.Appendf(nil, `{"expression":%s}`, plainJSON(t, rapid.String().Draw(t, "expression")))
		case "search":
			arguments, _ = json.Marshal(map[string]any{"query": rapid.String().Draw(t, "query"), "limit": rapid.Int().Draw(t, "limit")})
		}
		m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{ID: numbered(k), Type: "function", Function: dialog.Function{Name: tool.Name, Arguments: string(arguments)}})
	}
	return m
}

func plainJSON(t *rapid.T, text string) string {
	reply, problem := dialog.Compact().Parse(join(tokenizer.ToolCall, text, tokenizer.End), []dialog.Tool{calculator}, numbered)
	require.Empty(t, problem)
	var object map[string]string
	require.NoError(t, json.Unmarshal([]byte(reply.ToolCalls[0].Function.Arguments), &object))
	require.Equal(t, text, object["expression"])
	return reply.ToolCalls[0].Function.Arguments[len(`{"expression":`) : len(reply.ToolCalls[0].Function.Arguments)-1]
}

func drawLater(t *rapid.T) []dialog.Message {
	var out []dialog.Message
	for range rapid.IntRange(0, 3).Draw(t, "later") {
		out = append(out, dialog.Message{
			Role: rapid.SampledFrom([]dialog.Role{dialog.User, dialog.System, dialog.ToolReply}).Draw(t, "role"),
			// Clients send any bytes, valid or not.
			Content: string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text"),
		})
	}
	return out
}

func TestPromptOfTheWholeIsPromptCompletionBridge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, tools := dialog.Compact(), drawTools(t)
		history := append([]dialog.Message{{Role: dialog.User, Content: rapid.String().Draw(t, "question")}}, drawLater(t)...)
		ids, err := c.Prompt(history, tools)
		require.NoError(t, err)
		for range rapid.IntRange(1, 4).Draw(t, "turns") {
			reply := drawReply(t, tools)
			whole, _, err := c.Demonstration(dialog.Dialog{Messages: append(append([]dialog.Message{}, history...), reply), Tools: tools})
			require.NoError(t, err)
			require.Equal(t, ids, whole[:len(ids)], "a demonstration begins with the prompt")
			completion := whole[len(ids):]

			parsed, problem := c.Parse(completion, tools, numbered)
			require.Empty(t, problem)
			require.Empty(t, cmp.Diff(reply, parsed))

			later := drawLater(t)
			bridge, err := c.Bridge(later, tools)
			require.NoError(t, err)
			history = append(append(history, parsed), later...)
			ids = append(append(append([]int32{}, ids...), completion...), bridge...)
			again, err := c.Prompt(history, tools)
			require.NoError(t, err)
			require.Equal(t, ids, again)
		}
	})
}

func TestDemonstrationsTrainWhatTheAssistantSays(t *testing.T) {
	t.Parallel()
	c, zero := dialog.Compact(), 0
	ids, trained, err := c.Demonstration(dialog.Dialog{Tools: []dialog.Tool{calculator}, Messages: []dialog.Message{
		{Role: dialog.User, Content: "1+1"},
		{Role: dialog.Assistant, Content: "3", Weight: &zero},
		{Role: dialog.User, Content: "no"},
		{Role: dialog.Assistant, ToolCalls: called("calculator", `{ "expression": "1+1" }`)},
		{Role: dialog.ToolReply, Content: "2"},
		{Role: dialog.Assistant, Content: "2"},
	}})
	require.NoError(t, err)
	require.Len(t, trained, len(ids))
	var said []int32
	for i, id := range ids {
		if trained[i] {
			said = append(said, id)
		}
	}
	require.Equal(t, "<call>1+1<end>2<end>", c.Text(said))
	require.Equal(t, "<user>1+1<end><assistant>3<end><user>no<end><assistant><call>1+1<end><tool>2<end><assistant>2<end>", c.Text(ids))
}

func TestDemonstrationsThatTeachNothingReadableAreRefused(t *testing.T) {
	t.Parallel()
	ask, zero := dialog.Message{Role: dialog.User, Content: "1"}, 0
	for want, d := range map[string]dialog.Dialog{
		"without an assistant message to learn": {Messages: []dialog.Message{ask, {Role: dialog.Assistant, Content: "1", Weight: &zero}}},
		"message 1: bad dialog: tool call, but no tool is offered": {
			Messages: []dialog.Message{ask, {Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":"1"}`)}},
		},
		`unknown tool "run"`: {
			Tools: []dialog.Tool{calculator}, Messages: []dialog.Message{ask, {Role: dialog.Assistant, ToolCalls: called("run", `{}`)}},
		},
		`does not fit the parameters of "calculator"`: {
			Tools: []dialog.Tool{calculator}, Messages: []dialog.Message{ask, {Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":1}`)}},
		},
		`message 0: bad dialog: role "narrator"`: {Messages: []dialog.Message{{Role: "narrator"}}},
	} {
		_, _, err := dialog.Compact().Demonstration(d)
		require.ErrorIs(t, err, dialog.ErrDialog)
		require.ErrorContains(t, err, want)
	}
}

func TestDialogsThatCannotBeLaidOutAreRefused(t *testing.T) {
	t.Parallel()
	c := dialog.Compact()
	_, err := c.Prompt(nil, nil)
	require.ErrorIs(t, err, dialog.ErrDialog)
	_, err = c.Bridge([]dialog.Message{{Role: dialog.User}, {Role: ""}}, nil)
	require.ErrorContains(t, err, `message 1: bad dialog: role ""`)
	_, err = c.Prompt([]dialog.Message{{Role: dialog.User, ToolCalls: called("calculator", "{}")}}, nil)
	require.ErrorIs(t, err, dialog.ErrDialog)
}

func TestCallsOfOthersAreKeptInPrompts(t *testing.T) {
	t.Parallel()
	c := dialog.Compact()
	ids, err := c.Prompt([]dialog.Message{
		{Role: dialog.Assistant, ToolCalls: called("calculator", `{"expression":1}`)},
		{Role: dialog.Assistant, ToolCalls: called("run", `not json`)},
	}, []dialog.Tool{calculator})
	require.NoError(t, err)
	require.Equal(t, `<assistant><call>{"expression":1}<end><assistant><call>run<arg>not json<end><assistant>`, c.Text(ids))
}

func TestCodecsHaveNames(t *testing.T) {
	t.Parallel()
	c, err := dialog.Named("compact")
	require.NoError(t, err)
	require.Equal(t, "compact", c.Name())
	require.Equal(t, 288, c.VocabSize())
	require.Equal(t, []int32{tokenizer.End}, c.Stop())
	_, err = dialog.Named("verbose")
	require.ErrorIs(t, err, dialog.ErrCodec)
}
