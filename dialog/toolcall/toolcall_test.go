package toolcall_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog/toolcall"
)

func tools() []toolcall.Tool {
	return []toolcall.Tool{
		{Name: "add", Parameters: json.RawMessage(`{"type":"object","properties":{
			"a":{"type":"integer"},"b":{"type":"number"},"exact":{"type":"boolean"},"note":{"type":"string"},
			"tags":{"type":"array"},"more":{"type":"object"},"maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},
			"unit":{"enum":["cm","m"]},"kind":{"$ref":"#/$defs/kind"},"either":{"type":["string","integer"]}},
			"$defs":{"kind":{"type":"integer"}}}`)},
		{Name: "now"},
	}
}

func call(name, arguments string) toolcall.Call {
	return toolcall.Call{Name: name, Arguments: arguments}
}

func TestSoundCallsAreRead(t *testing.T) {
	t.Parallel()
	type reply = toolcall.Reply
	for format, cases := range map[string]map[string]reply{
		"hermes": {
			"":       {},
			"Hi.\n":  {Content: "Hi.\n"},
			"a < b ": {Content: "a < b "},
			"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>":                  {Calls: []toolcall.Call{call("add", `{"a": 1}`)}},
			`<tool_call>{"arguments":{},"name":"now"}</tool_call>`:                                       {Calls: []toolcall.Call{call("now", `{}`)}},
			"So:\n\n<tool_call>{\"type\":\"function\",\"name\":\"now\",\"arguments\":{}}</tool_call>\n ": {Content: "So:", Calls: []toolcall.Call{call("now", `{}`)}},
			`<tool_call>{"name":"now","arguments":{}}</tool_call>` + "\n" + `<tool_call>{"name":"add","arguments":{"note":"</tool_call> \" é"}}</tool_call>`: {
				Calls: []toolcall.Call{call("now", `{}`), call("add", `{"note":"</tool_call> \" é"}`)},
			},
			"</tool_call>": {Content: "</tool_call>"},
		},
		"llama3_json": {
			"Hi.": {Content: "Hi."},
			`{"name": "add", "parameters": {"a": 1}}`:                                          {Calls: []toolcall.Call{call("add", `{"a": 1}`)}},
			`{"type": "function", "name": "add", "arguments": {}}`:                             {Calls: []toolcall.Call{call("add", `{}`)}},
			"\n<|python_tag|> {\"name\":\"now\",\"parameters\":{}} ":                           {Calls: []toolcall.Call{call("now", `{}`)}},
			`{"name": "add", "parameters": {"note":";"}} ; {"name": "now", "parameters": {} }`: {Calls: []toolcall.Call{call("add", `{"note":";"}`), call("now", `{}`)}},
			`{"answer": 42}`:            {Content: `{"answer": 42}`},
			`{"answer": {"name": "x"}}`: {Content: `{"answer": {"name": "x"}}`},
			`{curly} braces`:            {Content: `{curly} braces`},
			`Try {"name": "now", "parameters": {}} yourself`: {Content: `Try {"name": "now", "parameters": {}} yourself`},
		},
		"mistral": {
			"Hi.": {Content: "Hi."},
			`So: [TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}, "id": "abcdefghi"}, {"arguments": {}, "name": "now"}] `: {
				Content: "So:", Calls: []toolcall.Call{call("add", `{"a": 1}`), call("now", `{}`)},
			},
			`[TOOL_CALLS][{"name": "add", "arguments": {"note": "]["}}]`:                {Calls: []toolcall.Call{call("add", `{"note": "]["}`)}},
			`[TOOL_CALLS]add[ARGS]{"a": 1}`:                                             {Calls: []toolcall.Call{call("add", `{"a": 1}`)}},
			`Hm[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": {}}[TOOL_CALLS]now[ARGS]{}`: {Content: "Hm", Calls: []toolcall.Call{call("add", `{"a": {}}`), call("now", `{}`)}},
			`[TOOL_CALLS]add{"note": "[TOOL_CALLS]"}`:                                   {Calls: []toolcall.Call{call("add", `{"note": "[TOOL_CALLS]"}`)}},
		},
		"pythonic": {
			"Hi.":     {Content: "Hi."},
			"[1, 2]":  {Content: "[1, 2]"},
			"[]":      {Content: "[]"},
			"[now()]": {Calls: []toolcall.Call{call("now", `{}`)}},
			`[add(a=1, b=-2.5e3, exact=True, note="x\n\"é\u00e9", tags=['a', "b",], more={"k": None, 'l': (1, 2)}), now()]`: {Calls: []toolcall.Call{
				call("add", `{"a": 1, "b": -2.5e3, "exact": true, "note": "x\n\"éé", "tags": ["a", "b"], "more": {"k": null, "l": [1, 2]}}`), call("now", `{}`),
			}},
			"<|python_start|>[now()]<|python_end|>":                {Calls: []toolcall.Call{call("now", `{}`)}},
			"[ add( b = 1. , a = (2), tags=(3,), maybe=.5 , ) , ]": {Calls: []toolcall.Call{call("add", `{"b": 1.0, "a": 2, "tags": [3], "maybe": 0.5}`)}},
			`[add(note='\x41\u00e9\U0001F600\\ \'' )]`:             {Calls: []toolcall.Call{call("add", `{"note": "Aé😀\\ '"}`)}},
		},
		"qwen3_xml": {
			"Hi.": {Content: "Hi."},
			"<tool_call>\n<function=now>\n</function>\n</tool_call>": {Calls: []toolcall.Call{call("now", `{}`)}},
			"So:\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n" +
				"<parameter=note>\n\n 1 < 2\n\n</parameter>\n<parameter=tags>\n[1, \"x\"]\n</parameter>\n<parameter=more>\n{\"k\": null}\n</parameter>\n" +
				"<parameter=maybe>\nNone\n</parameter>\n<parameter=unit>\ncm\n</parameter>\n<parameter=kind>\n7\n</parameter>\n<parameter=other>\n8\n</parameter>\n</function>\n</tool_call>": {
				Content: "So:", Calls: []toolcall.Call{call("add", `{"a": 1, "b": 2, "exact": true, "note": "\n 1 < 2\n", "tags": [1, "x"], "more": {"k": null}, "maybe": null, "unit": "cm", "kind": 7, "other": "8"}`)},
			},
			"<tool_call><function=add><parameter=either>5</parameter></function></tool_call><tool_call><function=add><parameter=either>five</parameter></function></tool_call>": {
				Calls: []toolcall.Call{call("add", `{"either": 5}`), call("add", `{"either": "five"}`)},
			},
		},
	} {
		f, err := toolcall.Named(format)
		require.NoError(t, err)
		for text, want := range cases {
			require.Empty(t, cmp.Diff(want, f.Parse(text, tools())), "%s: %s", format, text)
		}
	}
}

func TestMalformedCallsStayText(t *testing.T) {
	t.Parallel()
	for format, cases := range map[string]map[string]string{
		"hermes": {
			`<tool_call>`:                                                         "tool call 0: not a JSON object",
			`<tool_call>{"name":`:                                                 `the value of "name" is not JSON`,
			`<tool_call>{"name":"now","arguments":{}`:                             "not a JSON object",
			`<tool_call>{"name":"now","arguments":{}}`:                            "no </tool_call> after it",
			`<tool_call>{"name":"now","arguments":{}}{}</tool_call>`:              "no </tool_call> after it",
			`<tool_call>{"name":"now","arguments":"{}"}</tool_call>`:              `"arguments" is not a JSON object`,
			`<tool_call>{"name":"now","arguments":null}</tool_call>`:              `"arguments" is not a JSON object`,
			`<tool_call>{"name":"now","arguments":[]}</tool_call>`:                `"arguments" is not a JSON object`,
			`<tool_call>{"name":"now"}</tool_call>`:                               `"arguments" is absent`,
			`<tool_call>{"arguments":{}}</tool_call>`:                             `"name" is absent`,
			`<tool_call>{"name":7,"arguments":{}}</tool_call>`:                    `"name" is not a string`,
			`<tool_call>{"name":null,"arguments":{}}</tool_call>`:                 `"name" is not a string`,
			`<tool_call>{"name":"run","arguments":{}}</tool_call>`:                `unknown tool "run"`,
			`<tool_call>{"name":"now","parameters":{}}</tool_call>`:               `"parameters" out of place`,
			`<tool_call>{"name":"now","name":"add","arguments":{}}</tool_call>`:   `"name" occurs twice`,
			`<tool_call>{"name":"now","arguments":{}}</tool_call> ok`:             "text after a tool call",
			`<tool_call>{"name":"now","arguments":{}}</tool_call><tool_call>oops`: "tool call 1: not a JSON object",
			`<tool_call>[{"name":"now","arguments":{}}]</tool_call>`:              "not a JSON object",
			`Hi <tool_call>{"name":"now","arguments":{'a':1}}</tool_call>`:        `the value of "arguments" is not JSON`,
			`<tool_call>{"name":"now","type":"tool","arguments":{}}</tool_call>`:  `"type" out of place`,
		},
		"llama3_json": {
			`{"name": "now"`:                                    "not a JSON object",
			`{"name": "now"}`:                                   `"parameters" is absent`,
			`{"name": "run", "parameters": {}}`:                 `unknown tool "run"`,
			`{"name": "now", "parameters": {}, "arguments":{}}`: `"arguments" out of place`,
			`{"name": "now", "parameters": {}} so`:              "text after a tool call",
			`{"name": "now", "parameters": {}}; `:               "tool call 1: not a JSON object",
			`<|python_tag|>print(1)`:                            "not a JSON object",
			`<|python_tag|>{"answer": 1}`:                       `"answer" out of place`,
		},
		"mistral": {
			`[TOOL_CALLS]`:   "no arguments",
			`[TOOL_CALLS] [`: "not a JSON object",
			`[TOOL_CALLS] [{"name": "now", "arguments": {}}`:     "want , or the end",
			`[TOOL_CALLS] [{"name": "now", "arguments": {}}] so`: "want , or the end",
			`[TOOL_CALLS] [{"name": "run", "arguments": {}}]`:    `unknown tool "run"`,
			`[TOOL_CALLS] [{"name": "now", "parameters": {}}]`:   `"parameters" out of place`,
			`[TOOL_CALLS]run[ARGS]{}`:                            `unknown tool "run"`,
			`[TOOL_CALLS]now[ARGS]{"a"`:                          "arguments: ",
			`[TOOL_CALLS]now[ARGS]{} so`:                         "text after it",
			`[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]add[ARGS]`:       "tool call 1: no arguments",
		},
		"pythonic": {
			`[now()`:                                "want , or ]",
			`[now(`:                                 "want a name",
			`[run()]`:                               `unknown tool "run"`,
			`[now() now()]`:                         "want , or ]",
			`[now()] so`:                            "text after the tool calls",
			`[add(1)]`:                              "want a name",
			`[add(a=1, a=2)]`:                       `bad or repeated argument "a"`,
			`[add(a=f(1))]`:                         `"f" is not a literal`,
			`[add(a=1+1)]`:                          `"1+1" is not a decimal number`,
			`[add(a=0x10)]`:                         `"0x10" is not a decimal number`,
			`[add(a=007)]`:                          `"007" is not a decimal number`,
			`[add(a=1_000)]`:                        `"1_000" is not a decimal number`,
			`[add(a=nan)]`:                          `"nan" is not a literal`,
			`[add(note="x)]`:                        "the string has no end",
			"[add(note='a\nb')]":                    "the string has no end",
			`[add(note="""x""")]`:                   "a string of several lines",
			`[add(note="\q")]`:                      `the escape \q`,
			`[add(note="\ud800")]`:                  "is not a character",
			`[add(more={1: 2})]`:                    "want a string",
			`[add(more={"a": 1,"a":2})]`:            `key "a" occurs twice`,
			`[add(a.b=1)]`:                          `bad or repeated argument "a.b"`,
			`<|python_start|>print(1)`:              "want [",
			`<|python_start|>[]`:                    "no call in the list",
			`[add(tags=` + strings.Repeat("[", 100): "nest too deep",
		},
		"qwen3_xml": {
			"<tool_call>": "want <function=",
			"<tool_call>{\"name\":\"now\",\"arguments\":{}}</tool_call>":                                           "want <function=",
			"<tool_call><function=></function></tool_call>":                                                        "<function= without a name",
			"<tool_call><function=run></function></tool_call>":                                                     `unknown tool "run"`,
			"<tool_call><function=now></tool_call>":                                                                "want </function>",
			"<tool_call><function=now></function>":                                                                 "want </tool_call>",
			"<tool_call><function=now>so</function></tool_call>":                                                   "want </function>",
			"<tool_call><function=add><parameter=a>1</function></tool_call>":                                       `parameter "a" has no end`,
			"<tool_call><function=add><parameter=a>one</parameter></function></tool_call>":                         `parameter "a": "one" is not of type integer`,
			"<tool_call><function=add><parameter=a>1.5</parameter></function></tool_call>":                         "is not of type integer",
			"<tool_call><function=add><parameter=exact>1</parameter></function></tool_call>":                       "is not of type boolean",
			"<tool_call><function=add><parameter=more>[1]</parameter></function></tool_call>":                      "is not of type object",
			"<tool_call><function=add><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>": `parameter "a" occurs twice`,
			"<tool_call><function=now></function></tool_call> so":                                                  "text after a tool call",
		},
	} {
		f, err := toolcall.Named(format)
		require.NoError(t, err)
		for text, want := range cases {
			got := f.Parse(text, tools())
			require.Equal(t, text, got.Content, format)
			require.Empty(t, got.Calls, "%s: %s", format, text)
			require.Contains(t, got.Problem, want, "%s: %s", format, text)
		}
	}
}

func TestFormatsAreFoundByName(t *testing.T) {
	t.Parallel()
	for _, f := range toolcall.Formats() {
		same, err := toolcall.Named(f.Name())
		require.NoError(t, err)
		require.Equal(t, f, same)
	}
	_, err := toolcall.Named("xml")
	require.ErrorIs(t, err, toolcall.ErrFormat)
	require.ErrorContains(t, err, "want one of hermes, llama3_json, mistral, pythonic, qwen3_xml")
}

func FuzzParse(f *testing.F) {
	for i, text := range []string{
		"So <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>\n<tool_call>{",
		`<|python_tag|>{"name":"now","parameters":{}}; {"name":"add","parameters":{"a":[1,{}]}}`,
		`So [TOOL_CALLS] [{"name":"now","arguments":{},"id":"a"}][TOOL_CALLS]add[CALL_ID]x[ARGS]{"a":1}`,
		`[add(a=-1.5e3, note='\x41"', more={"k": (1, [None])}), now()]`,
		"<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
	} {
		f.Add(i, text)
	}
	f.Fuzz(func(t *testing.T, which int, text string) {
		text = strings.ToValidUTF8(text, "\uFFFD")
		formats := toolcall.Formats()
		format := formats[int(uint(which)%uint(len(formats)))]
		got := format.Parse(text, tools())
		if got.Problem != "" || len(got.Calls) == 0 {
			require.Equal(t, text, got.Content)
			require.Empty(t, got.Calls)
		}
		for _, c := range got.Calls {
			require.Contains(t, []string{"add", "now"}, c.Name)
			require.True(t, json.Valid([]byte(c.Arguments)) && c.Arguments[0] == '{', c.Arguments)
		}
		certain := 0
		for n := range len(text) + 1 {
			prefix := text[:n]
			if strings.ToValidUTF8(prefix, "") != prefix {
				continue // a character is certain only as a whole
			}
			now := format.Certain(prefix)
			require.GreaterOrEqual(t, now, certain)
			certain = now
		}
		require.True(t, strings.HasPrefix(got.Content, text[:certain]), "content %q, certain %q", got.Content, text[:certain])
	})
}
