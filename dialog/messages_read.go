package dialog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Asked is a decoded prompt of Messages: a dialog, or a text to continue.
type Asked struct {
	Dialog
	Text string
}

// ReadPrompt reads a prompt of Messages. The tool calls of recorded replies have no ids,
// so they get the ids that their results name.
func ReadPrompt(prompt []int32) (Asked, error) {
	if len(prompt) == 0 || prompt[0] < noted {
		if slices.ContainsFunc(prompt, func(id int32) bool { return id < 0 || id >= noted }) {
			return Asked{}, fmt.Errorf("%w: the prompt is neither turns nor text", ErrDialog)
		}
		return Asked{Text: messages{}.Text(prompt)}, nil
	}
	if prompt[len(prompt)-1] != replyMark {
		return Asked{}, fmt.Errorf("%w: the prompt does not end where the assistant speaks", ErrDialog)
	}
	var out Asked
	for rest := prompt[:len(prompt)-1]; len(rest) > 0; {
		n := slices.Index(rest, endMark)
		if n < 1 {
			return Asked{}, fmt.Errorf("%w: a turn without an end, or an end without a turn", ErrDialog)
		}
		if err := out.add(rest[0], rest[1:n], n+1 == len(rest)); err != nil {
			return Asked{}, err
		}
		rest = rest[n+1:]
	}
	nameCalls(out.Messages)
	return out, nil
}

// add adds a turn. If the turn is a list of tools, add keeps it only if it is the last
// turn: that list belongs to the request.
func (a *Asked) add(mark int32, said []int32, last bool) error {
	roles := map[int32]Role{systemMark: System, userMark: User, replyMark: Assistant, resultMark: ToolReply}
	role, ok := roles[mark]
	switch {
	case mark == toolsMark && last && len(said) > 0:
		if err := json.Unmarshal([]byte(messages{}.Text(said)), &a.Tools); err != nil {
			return fmt.Errorf("%w: tools: %w", ErrDialog, err)
		}
		return nil
	case mark == toolsMark:
		return nil
	case !ok:
		return fmt.Errorf("%w: token %d begins no turn", ErrDialog, mark)
	}
	u, err := parseTurn(said)
	if err != nil {
		return err
	}
	m := Message{Role: role, Content: u.words, Reasoning: u.thoughts, ToolCalls: u.calls}
	if u.note != "" {
		var note turnNote
		if err := json.Unmarshal([]byte(u.note), &note); err != nil {
			return fmt.Errorf("%w: note of a turn: %w", ErrDialog, err)
		}
		m.ToolCallID, m.Name = note.Of, note.Name
	}
	a.Messages = append(a.Messages, m)
	return nil
}

// turnParts are the parts of a turn.
type turnParts struct {
	words, thoughts string
	calls           []ToolCall
	note            string // JSON
	raw             string // the whole turn but the note, in readable form
}

// parseTurn separates the parts of a turn, up to its end.
func parseTurn(tokens []int32) (turnParts, error) {
	var u turnParts
	var words, thoughts, note, call []byte
	into := &words
	var problem error
	closeCall := func() {
		if into != &call {
			return
		}
		c := ToolCall{Type: "function"}
		if err := json.Unmarshal(call, &c); err != nil && problem == nil {
			problem = fmt.Errorf("%w: tool call %d: %w", ErrDialog, len(u.calls), err)
		}
		u.calls, call = append(u.calls, c), nil
	}
	n := slices.Index(tokens, endMark)
	if n < 0 {
		n = len(tokens)
	}
	for _, id := range tokens[:n] {
		switch {
		case id >= 0 && id < noted:
			*into = append(*into, byte(id))
		case id >= noted && id < 2*noted:
			note = append(note, byte(id-noted))
		case id == callMark:
			closeCall()
			into = &call
		case id == thoughtMark:
			closeCall()
			into = &thoughts
		case id == wordMark:
			closeCall()
			into = &words
		case id == pieceMark || id == breakMark:
		default:
			problem = errors.Join(problem, fmt.Errorf("%w: token %d inside of a turn", ErrDialog, id))
		}
	}
	closeCall()
	u.words, u.thoughts, u.note = valid(words), valid(thoughts), string(note)
	u.raw = messages{}.Text(tokens[:n])
	return u, problem
}

func valid(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

// nameCalls gives each tool call without an id the id of its result, or a new id if it
// has no result.
func nameCalls(all []Message) {
	for i := range all {
		var results []string
		for _, m := range all[i+1:] {
			if m.Role != ToolReply {
				break
			}
			results = append(results, m.ToolCallID)
		}
		calls := all[i].ToolCalls
		for k := range calls {
			if calls[k].ID != "" {
				continue
			}
			if calls[k].ID = resultOf(k, len(calls), results); calls[k].ID == "" {
				calls[k].ID = fmt.Sprintf("call_%d_%d", i, k)
			}
		}
	}
}

// resultOf returns the id of the result of call k: the id that ends in the call's number,
// as the gateway's ids do. If no id ends in the number of any call, it returns the id of
// result k, or "" if there is no such result.
func resultOf(k, calls int, results []string) string {
	at := func(k int) int {
		return slices.IndexFunc(results, func(id string) bool { return strings.HasSuffix(id, "_"+strconv.Itoa(k)) })
	}
	if n := at(k); n >= 0 {
		return results[n]
	}
	for other := range calls {
		if at(other) >= 0 {
			return ""
		}
	}
	if k < len(results) {
		return results[k]
	}
	return ""
}
