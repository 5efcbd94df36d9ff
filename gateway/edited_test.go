package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// said is an assistant's turn with calls, as a client sends it back.
type said struct {
	thoughts, text string
	calls          []called
}

type called struct{ id, name, arguments string }

const twoTools = `{"type":"object","properties":{"to":{"type":"string"},"sum":{"type":"number"}}}`

// paying returns a request with the turn and a result for each of its calls, or without
// the turn the request that it answers.
func paying(api wire.API, turn *said, more string) string {
	var tools, items, results []any
	add := func(v ...any) { items = append(items, v...) }
	type o = map[string]any
	for _, name := range []string{"pay", "ask"} {
		switch api {
		case wire.Chat:
			tools = append(tools, o{"type": "function", "function": o{"name": name, "parameters": json.RawMessage(twoTools)}})
		case wire.Responses:
			tools = append(tools, o{"type": "function", "name": name, "parameters": json.RawMessage(twoTools)})
		case wire.Messages:
			tools = append(tools, o{"name": name, "input_schema": json.RawMessage(twoTools)})
		}
	}
	add(o{"role": "user", "content": "q"})
	if turn != nil {
		var calls, blocks []any
		if turn.thoughts != "" {
			blocks = append(blocks, o{"type": "thinking", "thinking": turn.thoughts, "signature": ""})
		}
		if turn.text != "" {
			blocks = append(blocks, o{"type": "text", "text": turn.text})
		}
		for _, c := range turn.calls {
			result := "result of " + c.arguments
			switch api {
			case wire.Chat:
				calls = append(calls, o{"id": c.id, "type": "function", "function": o{"name": c.name, "arguments": c.arguments}})
				results = append(results, o{"role": "tool", "tool_call_id": c.id, "content": result})
			case wire.Responses:
				calls = append(calls, o{"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments})
				results = append(results, o{"type": "function_call_output", "call_id": c.id, "output": result})
			case wire.Messages:
				blocks = append(blocks, o{"type": "tool_use", "id": c.id, "name": c.name, "input": json.RawMessage(c.arguments)})
				results = append(results, o{"type": "tool_result", "tool_use_id": c.id, "content": result})
			}
		}
		switch api {
		case wire.Chat:
			add(o{"role": "assistant", "reasoning_content": turn.thoughts, "content": turn.text, "tool_calls": calls})
			add(results...)
		case wire.Responses:
			if turn.thoughts != "" {
				add(o{"type": "reasoning", "content": []any{o{"type": "reasoning_text", "text": turn.thoughts}}, "summary": []any{}})
			}
			add(o{"type": "message", "role": "assistant", "content": []any{o{"type": "output_text", "text": turn.text}}})
			add(calls...)
			add(results...)
		case wire.Messages:
			add(o{"role": "assistant", "content": blocks}, o{"role": "user", "content": results})
		}
	}
	field := "messages"
	if api == wire.Responses {
		field = "input"
	}
	body, err := json.Marshal(o{"model": "m", "max_tokens": 100, "tools": tools, field: items})
	if err != nil {
		panic(err)
	}
	return strings.TrimSuffix(string(body), "}") + more + "}"
}

func TestAToolCallThatTheClientEditedIsReadAsTheClientSaysIt(t *testing.T) {
	t.Parallel()
	const alice = `{"to":"alice","sum":5.0}`
	sampled := say("hm", tokenizer.Argument, "ok", tokenizer.ToolCall, "pay", tokenizer.Argument, alice, tokenizer.ToolCall, "ask", tokenizer.Argument, "{}", tokenizer.End)
	edits := map[string]struct {
		edit   func(*said)
		edited bool
		reads  string // in the prompt that the edit makes
	}{
		"nothing":                 {func(*said) {}, false, ""},
		"spaces, order, numbers":  {func(m *said) { m.calls[0].arguments = `{ "sum": 50e-1, "to":"\u0061lice" }` }, false, ""},
		"spaces around the text":  {func(m *said) { m.text = "\n ok " }, false, ""},
		"thoughts left out":       {func(m *said) { m.thoughts = "" }, false, ""},
		"arguments":               {func(m *said) { m.calls[0].arguments = `{"to":"bob","sum":9}` }, true, `<call>pay<arg>{"to":"bob","sum":9}`},
		"one number":              {func(m *said) { m.calls[0].arguments = `{"to":"alice","sum":5.0000000000000001}` }, true, `5.0000000000000001`},
		"emptied arguments":       {func(m *said) { m.calls[0].arguments = `{}` }, true, `<call>pay<arg>{}`},
		"added argument":          {func(m *said) { m.calls[0].arguments = `{"to":"alice","sum":5,"at":null}` }, true, `"at":null`},
		"arguments of the second": {func(m *said) { m.calls[1].arguments = `{"to":"carol"}` }, true, `<call>ask<arg>{"to":"carol"}`},
		"name":                    {func(m *said) { m.calls[0].name = "ask" }, true, `<call>ask<arg>{"to":"alice"`},
		"added text":              {func(m *said) { m.text = "ok, gladly" }, true, "ok, gladly<call>"},
		"text left out":           {func(m *said) { m.text = "" }, true, "hm<arg><call>pay"},
		"other thoughts":          {func(m *said) { m.thoughts = "edited" }, true, ""},
		"order of the calls":      {func(m *said) { m.calls[0], m.calls[1] = m.calls[1], m.calls[0] }, true, "ok<call>ask<arg>{}<call>pay"},
		"the first call removed":  {func(m *said) { m.calls = m.calls[1:] }, true, "ok<call>ask<arg>{}<end>"},
		"the last call removed":   {func(m *said) { m.calls = m.calls[:1] }, true, `}<end><tool>result`},
		"a call added":            {func(m *said) { m.calls = append(m.calls, called{"mine", "ask", `{"to":"eve"}`}) }, true, `<call>ask<arg>{"to":"eve"}`},
	}
	onProtocols(t, func(t *testing.T, p protocol) {
		for name, edit := range edits {
			for _, restarted := range []bool{false, true} {
				for _, more := range []string{"", `,"stream":true`} {
					t.Run(fmt.Sprintf("%s restarted %t %s", name, restarted, more), func(t *testing.T) {
						t.Parallel()
						s := newTestEnv(t, func(a *record.Attempt) { a.Terms.MaxTokens = 100 }, think)
						s.replies = [][]int32{sampled, say("A", tokenizer.End), say("B", tokenizer.End)}
						first := s.send(t, p, paying(p.api, nil, more))
						require.Equal(t, http.StatusOK, first.status, first.body)
						stem := s.recorded(t)[0].ID
						stem = stem[strings.Index(stem, "_")+1:]
						stem = stem[strings.Index(stem, "-")+1:]
						turn := &said{"hm", "ok", []called{{"call_" + stem + "_0", "pay", alice}, {"call_" + stem + "_1", "ask", "{}"}}}
						edit.edit(turn)
						if restarted {
							s.restart(t)
						}
						second := s.send(t, p, paying(p.api, turn, more))
						require.Equal(t, http.StatusOK, second.status, second.body)
						call := s.recorded(t)[1]
						read := text(call.Prompt)
						if !edit.edited {
							require.Equal(t, 0, call.Parent, read)
							require.Equal(t, sampled, call.Prompt[len(s.recorded(t)[0].Prompt):][:len(sampled)], "as it was sampled")
							return
						}
						require.Equal(t, -1, call.Parent, read)
						require.Contains(t, read, edit.reads)
					})
				}
			}
		}
	}, wire.Completions)
}

// Two attempts that edit the same reply differently have made different requests.
func TestAnEditedToolCallReplaysOnlyTheSameEdit(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	s.replies = [][]int32{say(tokenizer.ToolCall, "pay", tokenizer.Argument, `{"to":"alice"}`, tokenizer.End)}
	edited := func(to string) string {
		id := "call_" + strings.TrimPrefix(s.recorded(t)[0].ID, "chatcmpl-") + "_0"
		return paying(wire.Chat, &said{calls: []called{{id, "pay", `{"to":"` + to + `"}`}}}, "")
	}
	s.ask(t, 1, paying(wire.Chat, nil, ""))
	bob := s.ask(t, 1, edited("bob"))
	s.next(t, 2)
	s.ask(t, 2, paying(wire.Chat, nil, ""))
	eve := s.ask(t, 2, edited("eve"))
	require.Equal(t, http.StatusOK, eve.status, eve.body)
	require.NotEqual(t, bob.body, eve.body)
	require.Equal(t, bob.body, s.ask(t, 2, edited("bob")).body)
	require.Equal(t, []int{1, 0, 1}, s.from(t, 2))
	// The dialog that goes on from an edited turn continues its own sequence.
	var whole map[string]any
	require.NoError(t, json.Unmarshal([]byte(edited("eve")), &whole))
	whole["messages"] = append(whole["messages"].([]any), map[string]any{"role": "assistant", "content": content(t, eve.body)}, map[string]any{"role": "user", "content": "on"})
	on, err := json.Marshal(whole)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, s.ask(t, 2, string(on)).status)
	require.Equal(t, 1, s.calls(t, 2)[3].Parent)
}
