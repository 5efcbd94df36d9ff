package dialog_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/dialog"
)

func TestRepliesOfTemplatesAreRead(t *testing.T) {
	t.Parallel()
	one := []dialog.Tool{calculator}
	call := "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1\"}}\n</tool_call>"
	for name, c := range map[string]struct {
		family, text string
		tools        []dialog.Tool
		want         dialog.Message
		problem      string
	}{
		"content":                  {"hermes", "Hi.\n", one, dialog.Message{Content: "Hi.\n"}, ""},
		"a thought":                {"hermes", "<think>\nhm\n\n</think>\n\nHi", one, dialog.Message{Reasoning: "hm", Content: "Hi"}, ""},
		"an empty thought":         {"hermes", "<think>\n\n</think>\n\nHi", one, dialog.Message{Content: "Hi"}, ""},
		"a thought without an end": {"hermes", "<think>\nhm", one, dialog.Message{Content: "<think>\nhm"}, "reasoning without an end"},
		"a thought and a call":     {"hermes", "<think>hm</think>\nSo:\n" + call, one, dialog.Message{Reasoning: "hm", Content: "So:", ToolCalls: called("calculator", `{"expression": "1"}`)}, ""},
		"a thought and a bad call": {"hermes", "<think>hm</think>\nSo:\n<tool_call>{", one, dialog.Message{Reasoning: "hm", Content: "So:\n<tool_call>{"}, "tool call 0: not a JSON object"},
		"a later thought is text":  {"hermes", "Hi <think>hm</think>", one, dialog.Message{Content: "Hi <think>hm</think>"}, ""},
		"no tool is offered":       {"hermes", call, nil, dialog.Message{Content: call}, "tool call, but no tool is offered"},
		"a special token":          {"hermes", "a<|im_start|>b", one, dialog.Message{Content: "a<|im_start|>b"}, "<|im_start|> out of place"},
		"one after a thought":      {"hermes", "<think>hm</think>a<|im_start|>b", one, dialog.Message{Reasoning: "hm", Content: "a<|im_start|>b"}, "<|im_start|> out of place"},
		"one inside a thought":     {"hermes", "<think>h<|im_start|>m</think>a", one, dialog.Message{Content: "<think>h<|im_start|>m</think>a"}, "<|im_start|> out of place"},
		"opened by the prompt":     {"xml", "hm\n</think>\n\nHi", one, dialog.Message{Reasoning: "hm", Content: "Hi"}, ""},
		"opened and not ended":     {"xml", "Hi", one, dialog.Message{Content: "Hi"}, "reasoning without an end"},
		"opened twice":             {"xml", "<think>\nhm\n</think>\n\nHi", one, dialog.Message{Reasoning: "hm", Content: "Hi"}, ""},
		"a mark of Llama's calls": {"llama", `<|python_tag|>{"name":"calculator","parameters":{"expression":"1"}}`, one,
			dialog.Message{ToolCalls: called("calculator", `{"expression":"1"}`)}, ""},
		"the mark without tools": {"llama", "<|python_tag|>x", nil, dialog.Message{Content: "<|python_tag|>x"}, "<|python_tag|> out of place"},
		"no thoughts for Llama":  {"llama", "<think>hm</think>Hi", one, dialog.Message{Content: "<think>hm</think>Hi"}, ""},
		"JSON without tools":     {"llama", `{"name":"calculator","parameters":{}}`, nil, dialog.Message{Content: `{"name":"calculator","parameters":{}}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := codec(t, c.family)
			completion := append(withSpecials(t, c.family, c.text), of.Stop()[0])
			got, problem := of.Parse(completion, c.tools, numbered)
			require.Equal(t, c.problem, problem)
			c.want.Role = dialog.Assistant
			require.Empty(t, cmp.Diff(c.want, got))
			again, _ := of.Parse(append(completion, of.Encode(" more")...), c.tools, numbered)
			require.Equal(t, got, again, "what follows the end is not read")
		})
	}
}

// withSpecials encodes text as a model might sample it: the names of special tokens
// become these tokens.
func withSpecials(t testing.TB, family, text string) []int32 {
	t.Helper()
	c := codec(t, family)
	var ids []int32
	for text != "" {
		at, name := len(text), ""
		for id := range int32(c.VocabSize()) {
			special := c.Text([]int32{id})
			if i := strings.Index(text, special); strings.HasPrefix(special, "<|") && i >= 0 && i < at && len(c.Encode(special)) > 1 {
				at, name = i, special
			}
		}
		ids = append(ids, c.Encode(text[:at])...)
		for id := range int32(c.VocabSize()) {
			if name != "" && c.Text([]int32{id}) == name {
				ids = append(ids, id)
			}
		}
		text = text[at+len(name):]
	}
	return ids
}

func TestAThoughtThatIsCutOffIsReasoning(t *testing.T) {
	t.Parallel()
	one := []dialog.Tool{calculator}
	for text, c := range map[string]struct{ family, want string }{
		"<think>\nhm":                 {"hermes", "\nhm"},
		"<think>":                     {"hermes", ""},
		"<think>\nhm\n<tool_call>{":   {"hermes", "\nhm\n<tool_call>{"},
		"<think>hm</thi":              {"hermes", "hm"},
		"hm <":                        {"xml", "hm <"},
		"hm\n<tool_call>\n<function=": {"xml", "hm\n<tool_call>\n<function="},
	} {
		of := codec(t, c.family)
		got, problem := of.Parse(withSpecials(t, c.family, text), one, numbered)
		require.Empty(t, problem, text)
		require.Empty(t, cmp.Diff(dialog.Message{Role: dialog.Assistant, Reasoning: strings.Trim(c.want, "\n")}, got), text)
		require.Empty(t, of.Partial(withSpecials(t, c.family, text), one), text)
	}
}

// Whatever is sampled, all that Partial has returned stays the beginning of the content,
// and each call that is read is a valid one.
func TestNothingSaidIsTakenBack(t *testing.T) {
	t.Parallel()
	pieces := map[string][]string{
		"hermes":   {"<think>", "\n", "</think>", "<tool_call>", "</tool_call>", `{"name": "search", "arguments": `, `{"query": "x"}`, "}", " ", "Hi", "<", "<tool", "_call>", "é"},
		"llama":    {`{"name": "search", `, `"parameters": `, `{"query": "x"}`, "}", "; ", " ", "Hi", "{", "<|python", "_tag|>", "é"},
		"xml":      {"</think>", "<tool_call>", "\n", "<function=search>", "<parameter=query>", "x", "</parameter>", "</function>", "</tool_call>", "<", "<tool_c", "Hi", " ", "é"},
		"pythonic": {"[search(", `query="x"`, ")", "]", ", ", " ", "Hi", "[", "é"},
	}
	for _, name := range families() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := codec(t, name)
			rapid.Check(t, func(t *rapid.T) {
				var ids []int32
				for _, p := range rapid.SliceOfN(rapid.SampledFrom(pieces[name]), 0, 12).Draw(t, "pieces") {
					ids = append(ids, c.Encode(p)...)
				}
				for range rapid.IntRange(0, 3).Draw(t, "noise") {
					at := rapid.IntRange(0, len(ids)).Draw(t, "at")
					id := int32(rapid.IntRange(-1, c.VocabSize()).Draw(t, "id"))
					ids = append(ids[:at:at], append([]int32{id}, ids[at:]...)...)
				}
				tools := []dialog.Tool{calculator, search}[:rapid.IntRange(0, 2).Draw(t, "tools")]
				reply, problem := c.Parse(ids, tools, numbered)
				require.True(t, utf8.ValidString(reply.Content) && utf8.ValidString(reply.Reasoning))
				if problem != "" {
					require.Empty(t, reply.ToolCalls)
				}
				for _, call := range reply.ToolCalls {
					require.True(t, strings.HasPrefix(call.Function.Arguments, "{"))
				}
				said := ""
				for n := range len(ids) + 1 {
					now := c.Partial(ids[:n], tools)
					require.True(t, strings.HasPrefix(now, said), "%q after %q", now, said)
					said = now
				}
				require.True(t, strings.HasPrefix(reply.Content, said), "content %q, said %q", reply.Content, said)
			})
		})
	}
}

func TestContentIsSaidAsItComes(t *testing.T) {
	t.Parallel()
	c, tools := codec(t, "hermes"), []dialog.Tool{calculator}
	says := func(text string) string { return c.Partial(c.Encode(text), tools) }
	require.Empty(t, says("<thi"))
	require.Empty(t, says("<think>\nhm"))
	require.Equal(t, "Hi", says("<think>\nhm</think>\n\nHi"))
	require.Equal(t, "Hi", says("Hi\n"), "white space may belong to a call")
	require.Equal(t, "Hi", says("Hi\n<tool"))
	require.Equal(t, "Hi\n<tools", says("Hi\n<tools"))
	require.Equal(t, "Hi", says("Hi\n<tool_call>"))
	require.Equal(t, "Hi\n<tool_call>", c.Partial(c.Encode("Hi\n<tool_call>"), nil), "nothing can be called")
	require.Equal(t, "a", c.Partial(append(c.Encode("a"), c.Encode("龍")[0]), nil), "half a character")
	require.Equal(t, "a龍", c.Partial(c.Encode("a龍"), nil))
}

func TestDemonstrationsOfTemplatesTrainReplies(t *testing.T) {
	t.Parallel()
	zero := 0
	tools := []dialog.Tool{calculator}
	d := dialog.Dialog{Tools: tools, Messages: []dialog.Message{
		{Role: dialog.User, Content: "1+1"},
		{Role: dialog.Assistant, Content: "3", Weight: &zero},
		{Role: dialog.User, Content: "no"},
		{Role: dialog.Assistant, Reasoning: "ask", ToolCalls: called("calculator", `{ "expression": "1+1" }`)},
		{Role: dialog.ToolReply, Content: "2", ToolCallID: "call_0"},
		{Role: dialog.Assistant, Content: "2", Reasoning: "so"},
	}}
	said := func(c dialog.Codec, d dialog.Dialog) string {
		ids, trained, err := c.Demonstration(d)
		require.NoError(t, err)
		require.Len(t, trained, len(ids))
		var learned []int32
		for i, id := range ids {
			if trained[i] {
				learned = append(learned, id)
			}
		}
		return c.Text(learned)
	}
	c := codec(t, "hermes")
	require.Equal(t, "<think>\nask\n</think>\n\n<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1+1\"}}\n</tool_call><|im_end|>"+
		"<think>\nso\n</think>\n\n2<|im_end|>", said(c, d))
	require.Equal(t, "ask\n</think>\n\n<tool_call>\n<function=calculator>\n<parameter=expression>\n1+1\n</parameter>\n</function>\n</tool_call><|im_end|>"+
		"so\n</think>\n\n2<|im_end|>", said(codec(t, "xml"), d))

	ids, _, err := c.Demonstration(d)
	require.NoError(t, err)
	prompt, err := c.Prompt(d.Messages[:5], tools)
	require.NoError(t, err)
	require.Equal(t, prompt, ids[:len(prompt)], "the last reply follows the prompt for it")

	open := append(append([]dialog.Message{}, d.Messages...), dialog.Message{Role: dialog.User, Content: "bye"})
	for want, bad := range map[string][]dialog.Message{
		"does not keep the reasoning of the reply": open,
		"without an assistant message to learn":    d.Messages[:3],
		"bad dialog":                               {{Role: "narrator"}},
		"unknown tool":                             {{Role: dialog.User}, {Role: dialog.Assistant, ToolCalls: called("run", `{}`)}},
		"reads":                                    {{Role: dialog.User}, {Role: dialog.Assistant, Content: "<think>b</think>c"}},
	} {
		_, _, err := c.Demonstration(dialog.Dialog{Messages: bad, Tools: tools})
		require.ErrorIs(t, err, dialog.ErrDialog, want)
		require.ErrorContains(t, err, want)
	}
	_, _, err = codec(t, "rewriting").Demonstration(dialog.Dialog{Messages: d.Messages[:2]})
	require.ErrorIs(t, err, dialog.ErrDialog)
	_, _, err = codec(t, "rewriting").Demonstration(dialog.Dialog{Messages: []dialog.Message{d.Messages[0], {Role: dialog.Assistant, Content: "2"}}})
	require.ErrorContains(t, err, "renders the reply differently")
}
