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

// Demonstration returns an error in the same cases as Compact's, and for a dialog that
// the template does not write turn by turn: each reply has to follow its prompt, as it
// will when it is sampled.
func (c *template) Demonstration(d Dialog) ([]int32, []bool, error) {
	if err := c.offers(d.Tools); err != nil {
		return nil, nil, err
	}
	whole, err := c.render.dialog(d.Messages, d.Tools, false)
	if err != nil {
		return nil, nil, fmt.Errorf("demonstration: %w", err)
	}
	l := lesson{c: c, rest: whole}
	learned := false
	for i, m := range d.Messages {
		if m.Role != Assistant {
			continue
		}
		learn := m.Weight == nil || *m.Weight != 0
		if err := l.turn(d, i, learn); err != nil {
			return nil, nil, fmt.Errorf("demonstration message %d: %w", i, err)
		}
		learned = learned || learn
	}
	if !learned {
		return nil, nil, fmt.Errorf("%w: demonstration without an assistant message to learn", ErrDialog)
	}
	if d.Messages[len(d.Messages)-1].Role != Assistant {
		l.given(l.rest)
	}
	if err := c.checkRows(l.ids); err != nil {
		return nil, nil, fmt.Errorf("demonstration: %w", err)
	}
	return l.ids, l.trained, nil
}

// lesson collects the tokens of a demonstration, turn by turn.
type lesson struct {
	c       *template
	done    int    // bytes of the rendered dialog that are encoded
	rest    string // the part of the rendered dialog that is not encoded yet
	end     string // the token that ended the last reply
	ids     []int32
	trained []bool
}

// turn encodes the messages before reply i, and the reply.
func (l *lesson) turn(d Dialog, i int, learn bool) error {
	prompt, err := l.c.render.dialog(d.Messages[:i], d.Tools, true)
	if err != nil {
		return err
	}
	if len(prompt) < l.done || !strings.HasPrefix(l.rest, prompt[l.done:]) {
		return fmt.Errorf("%w: the chat template renders the reply differently in the whole dialog than when it is asked for; make one demonstration for each reply", ErrDialog)
	}
	l.given(prompt[l.done:])
	end := ""
	at := len(l.rest)
	for _, id := range l.c.stop {
		name := l.c.vocabulary.Name(id)
		if j := strings.Index(l.rest[:at], name); j >= 0 {
			at, end = j, name
		}
	}
	if end == "" {
		return fmt.Errorf("%w: the chat template does not end the reply", ErrDialog)
	}
	said := l.c.vocabulary.EncodeGuarded(l.rest[:at+len(end)], l.c.render.guard)
	if learn {
		if err := l.c.readable(said, d.Messages[i], d.Tools); err != nil {
			return err
		}
	}
	l.add(said, learn)
	l.step(at + len(end))
	l.end = end
	return nil
}

// given appends the tokens of text that is not trained.
func (l *lesson) given(text string) {
	ids := l.c.vocabulary.EncodeGuarded(l.end+text, l.c.render.guard)
	if l.end != "" {
		ids = ids[1:]
	}
	l.add(ids, false)
	l.step(len(text))
}

func (l *lesson) add(ids []int32, trained bool) {
	l.ids = append(l.ids, ids...)
	for range ids {
		l.trained = append(l.trained, trained)
	}
}

func (l *lesson) step(n int) {
	l.done += n
	l.rest = l.rest[n:]
}

// readable returns an error unless Parse reads completion as m.
func (c *template) readable(completion []int32, m Message, tools []Tool) error {
	got, problem := c.Parse(completion, tools, func(int) string { return "" })
	switch {
	case problem != "":
		return fmt.Errorf("%w: %s", ErrDialog, problem)
	case strings.TrimSpace(got.Content) != strings.TrimSpace(m.Content):
		return fmt.Errorf("%w: the reply reads %.60q when it is parsed", ErrDialog, got.Content)
	case strings.TrimSpace(got.Reasoning) != strings.TrimSpace(m.Reasoning):
		return fmt.Errorf("%w: the chat template does not keep the reasoning of the reply", ErrDialog)
	case len(got.ToolCalls) != len(m.ToolCalls):
		return fmt.Errorf("%w: %d tool calls read as %d", ErrDialog, len(m.ToolCalls), len(got.ToolCalls))
	}
	return sameCalls(got.ToolCalls, m.ToolCalls)
}
