package dialog

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/dialog/jinja"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// renderer lays dialogs out as text.
type renderer struct {
	plain, withTools *jinja.Template
	variables        []jinja.Member
	now              time.Time
	guard            *tokenizer.Guard
	// open are texts for which templates look in what an assistant said.
	open []string
	// shortIDs is true if the template wants ids of nine letters and digits.
	shortIDs bool
}

// dialog renders messages. If open is true, the text ends where the assistant's reply
// begins.
func (r *renderer) dialog(messages []Message, tools []Tool, open bool) (string, error) {
	turns := make([]jinja.Value, len(messages))
	for i, m := range messages {
		var err error
		if turns[i], err = r.turn(m); err != nil {
			return "", fmt.Errorf("message %d: %w", i, err)
		}
	}
	members := append([]jinja.Member{
		{Key: "messages", Value: jinja.List(turns...)},
		{Key: "add_generation_prompt", Value: jinja.Bool(open)},
	}, r.variables...)
	by := r.plain
	var offered jinja.Value // none
	if len(tools) > 0 {
		by = r.withTools
		var err error
		if offered, err = r.offer(tools); err != nil {
			return "", err
		}
	}
	members = append(members, jinja.Member{Key: "tools", Value: offered}, jinja.Member{Key: "documents"})
	text, err := by.RenderMarked(jinja.Object(members...), r.now, r.guard.Alphabet)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrDialog, err)
	}
	return text, nil
}

func (r *renderer) turn(m Message) (jinja.Value, error) {
	role := m.Role
	switch role {
	case System, User, Assistant, ToolReply:
	case "developer":
		role = System
	default:
		return jinja.Value{}, fmt.Errorf("%w: role %q", ErrDialog, m.Role)
	}
	if m.Role != Assistant && len(m.ToolCalls) > 0 {
		return jinja.Value{}, fmt.Errorf("%w: tool calls in a turn of role %q", ErrDialog, m.Role)
	}
	turn := []jinja.Member{{Key: "role", Value: jinja.String(string(role))}, {Key: "content", Value: r.said(m, m.Content)}}
	if m.Reasoning != "" {
		turn = append(turn, jinja.Member{Key: "reasoning_content", Value: r.said(m, m.Reasoning)})
	}
	for _, one := range []struct{ key, text string }{
		{"tool_call_id", r.id(m.ToolCallID)}, {"name", m.Name},
	} {
		if one.text != "" {
			turn = append(turn, jinja.Member{Key: one.key, Value: r.text(one.text)})
		}
	}
	var calls []jinja.Value
	for _, call := range m.ToolCalls {
		value, err := r.call(call)
		if err != nil {
			return jinja.Value{}, err
		}
		calls = append(calls, value)
	}
	if calls != nil {
		turn = append(turn, jinja.Member{Key: "tool_calls", Value: jinja.List(calls...)})
	}
	return jinja.Object(turn...), nil
}

// call returns a tool call in the form that templates read, with its arguments as an
// object. A history from another source may have other arguments: none at all, blanks or
// null are no arguments, and what is not a JSON object becomes a string in an object.
func (r *renderer) call(call ToolCall) (jinja.Value, error) {
	arguments := json.RawMessage(call.Function.Arguments)
	switch strings.Trim(call.Function.Arguments, blank) {
	case "", "null":
		arguments = json.RawMessage("{}")
	}
	if !isObject(string(arguments)) {
		arguments = json.RawMessage(objectOf("_raw", call.Function.Arguments))
	}
	value, err := jinja.FromJSON(r.json(arguments))
	if err != nil {
		return jinja.Value{}, fmt.Errorf("%w: arguments of %q: %w", ErrDialog, call.Function.Name, err)
	}
	return jinja.Object(
		jinja.Member{Key: "id", Value: r.text(r.id(call.ID))},
		jinja.Member{Key: "type", Value: jinja.String("function")},
		jinja.Member{Key: "function", Value: jinja.Object(
			jinja.Member{Key: "name", Value: r.text(call.Function.Name)},
			jinja.Member{Key: "arguments", Value: value},
		)},
	), nil
}

func (r *renderer) offer(tools []Tool) (jinja.Value, error) {
	list := make([]jinja.Value, len(tools))
	for i, t := range tools {
		function := []jinja.Member{{Key: "name", Value: r.text(t.Name)}}
		if t.Description != "" {
			function = append(function, jinja.Member{Key: "description", Value: r.text(t.Description)})
		}
		if len(t.Parameters) > 0 {
			value, err := jinja.FromJSON(r.json(t.Parameters))
			if err != nil {
				return jinja.Value{}, fmt.Errorf("%w: parameters of tool %q: %w", ErrDialog, t.Name, err)
			}
			function = append(function, jinja.Member{Key: "parameters", Value: value})
		}
		list[i] = jinja.Object(
			jinja.Member{Key: "type", Value: jinja.String("function")},
			jinja.Member{Key: "function", Value: jinja.Object(function...)},
		)
	}
	return jinja.List(list...), nil
}

// id returns the id of a call as the template takes it. Equal ids stay equal.
func (r *renderer) id(s string) string {
	const length, alphabet = 9, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if !r.shortIDs || s == "" || len(s) == length && strings.Trim(s, alphabet) == "" {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	short := sum[:length]
	for i, b := range short {
		short[i] = alphabet[int(b)%len(alphabet)]
	}
	return string(short)
}

// text returns a string that becomes no guarded token, whatever the template makes of it.
func (r *renderer) text(s string) jinja.Value { return jinja.String(r.guard.Mark(s, nil)) }

// said returns a text of a message. Marks of reasoning and of tool calls that an assistant
// wrote are those marks.
func (r *renderer) said(m Message, s string) jinja.Value {
	if m.Role != Assistant {
		return r.text(s)
	}
	return jinja.String(r.guard.Mark(s, r.open))
}

// json guards the strings of a JSON text, however they are escaped.
func (r *renderer) json(text json.RawMessage) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if text[i] != '"' {
			out = append(out, text[i])
			i++
			continue
		}
		end := i + 1
		for end < len(text) && text[end] != '"' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(text))
		written := text[i:end]
		var s string
		if json.Unmarshal(written, &s) == nil {
			if guarded := r.guard.Mark(s, nil); guarded != s {
				written, _ = json.Marshal(guarded) // strings always encode
			}
		}
		out = append(out, written...)
		i = end
	}
	return out
}
