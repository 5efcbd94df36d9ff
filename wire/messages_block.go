package wire

import (
	"encoding/json"

	"github.com/fulgurite/fulgurite/dialog"
)

// block is a content block of Messages, whichever its type.
type block struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Thinking string `json:"thinking"`

	ID    string          `json:"id"` // tool_use
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`

	ToolUseID string          `json:"tool_use_id"` // tool_result
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// blocks reads a message's content; a text is one block.
func blocks(raw json.RawMessage, field string) ([]block, error) {
	if !given(raw) {
		return nil, nil
	}
	if raw[0] == '"' {
		return []block{{Type: "text", Text: stringOf(raw)}}, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return nil, Invalid(field, "content is neither text nor a list of blocks")
	}
	all := make([]block, len(parts))
	for i, part := range parts {
		if !isObject(part) || json.Unmarshal(part, &all[i]) != nil {
			return nil, Invalid(at(field, i), "the block is not an object with a type and its fields")
		}
	}
	return all, nil
}

// userBlocks returns the turns in a message of the user: one for each result of a tool,
// and one for the text between two results.
func userBlocks(raw json.RawMessage, field string) ([]dialog.Message, error) {
	all, err := blocks(raw, field)
	if err != nil {
		return nil, err
	}
	var turns []dialog.Message
	for i, b := range all {
		switch b.Type {
		case "text":
			if last := len(turns) - 1; last >= 0 && turns[last].Role == dialog.User {
				turns[last].Content += b.Text
				continue
			}
			turns = append(turns, dialog.Message{Role: dialog.User, Content: b.Text})
		case "tool_result":
			result, err := b.result(at(field, i))
			if err != nil {
				return nil, err
			}
			turns = append(turns, result)
		default:
			return nil, textOnly(at(field, i), b.Type)
		}
	}
	if len(turns) == 0 {
		turns = []dialog.Message{{Role: dialog.User}}
	}
	return turns, nil
}

// result returns the turn of a tool's result. Only its text says whether the tool failed.
func (b block) result(field string) (dialog.Message, error) {
	m := dialog.Message{Role: dialog.ToolReply, ToolCallID: b.ToolUseID}
	if b.ToolUseID == "" {
		return m, Invalid(field+".tool_use_id", "the result names no tool_use that it answers")
	}
	var err error
	if m.Content, err = content(b.Content, field+".content", "text"); err != nil {
		return m, err
	}
	if b.IsError && m.Content == "" {
		m.Content = "error"
	}
	return m, nil
}

// assistantBlocks returns the one turn in a message of the assistant.
func assistantBlocks(raw json.RawMessage, field string) ([]dialog.Message, error) {
	all, err := blocks(raw, field)
	if err != nil {
		return nil, err
	}
	m := dialog.Message{Role: dialog.Assistant}
	for i, b := range all {
		switch b.Type {
		case "text":
			m.Content += b.Text
		case "thinking":
			m.Reasoning += b.Thinking
		case "redacted_thinking": // it can't be read
		case "tool_use":
			call, err := b.call(at(field, i))
			if err != nil {
				return nil, err
			}
			m.ToolCalls = append(m.ToolCalls, call)
		default:
			return nil, textOnly(at(field, i), b.Type)
		}
	}
	return []dialog.Message{m}, nil
}

func (b block) call(field string) (dialog.ToolCall, error) {
	switch {
	case b.Name == "":
		return dialog.ToolCall{}, Invalid(field+".name", "the tool_use names no tool")
	case !given(b.Input):
		b.Input = json.RawMessage(`{}`)
	case !isObject(b.Input):
		return dialog.ToolCall{}, Invalid(field+".input", "the input of a tool is an object")
	}
	return functionCall{b.Name, b.Input}.call(b.ID), nil
}
