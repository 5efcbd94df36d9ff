package wire

import (
	"encoding/json"

	"github.com/fulgurite/fulgurite/dialog"
)

// messagesReply is the JSON of a message.
type messagesReply struct {
	ID           string        `json:"id"`
	Type         string        `json:"type"` // "message"
	Role         dialog.Role   `json:"role"`
	Model        string        `json:"model"`
	Content      []any         `json:"content"`
	StopReason   *string       `json:"stop_reason"`
	StopSequence *string       `json:"stop_sequence"`
	Usage        messagesUsage `json:"usage"`
}

type messagesUsage struct {
	InputTokens         int `json:"input_tokens"`
	CacheCreationTokens int `json:"cache_creation_input_tokens"`
	CacheReadTokens     int `json:"cache_read_input_tokens"`
	OutputTokens        int `json:"output_tokens"`
}

type textBlock struct {
	Type string `json:"type"` // "text"
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type     string `json:"type"` // "thinking"
	Thinking string `json:"thinking"`
	// Signature is written because clients drop reasoning that has none.
	Signature string `json:"signature"`
}

type toolUseBlock struct {
	Type   string          `json:"type"` // "tool_use"
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Caller directCaller    `json:"caller"`
}

// directCaller says that the model itself called a tool.
type directCaller struct {
	Type string `json:"type"` // "direct"
}

func toolUse(call dialog.ToolCall, input json.RawMessage) toolUseBlock {
	return toolUseBlock{"tool_use", call.ID, call.Function.Name, input, directCaller{"direct"}}
}

func messagesHead(head Reply) messagesReply {
	return messagesReply{
		ID: Messages.ReplyID(head.ID), Type: "message", Role: dialog.Assistant, Model: head.Model,
		Content: []any{}, Usage: messagesUsage{InputTokens: head.PromptTokens},
	}
}

func messagesReplyOf(reply Reply) messagesReply {
	body, c := messagesHead(reply), reply.Choices[0]
	body.Usage.OutputTokens = c.Tokens
	body.StopReason, body.StopSequence = c.stopReason()
	if c.Message.Reasoning != "" {
		body.Content = append(body.Content, thinkingBlock{"thinking", c.Message.Reasoning, reply.ID})
	}
	if c.hasText() {
		body.Content = append(body.Content, textBlock{Type: "text", Text: c.Message.Content})
	}
	for _, call := range c.Message.ToolCalls {
		body.Content = append(body.Content, toolUse(call, arguments(call)))
	}
	return body
}

// hasText reports whether a choice shows a text. A choice without tool calls shows one
// even if it is empty, because clients look for it.
func (c Choice) hasText() bool {
	return c.Message.Content != "" || len(c.Message.ToolCalls) == 0
}

func (c Choice) stopReason() (reason, sequence *string) {
	why := map[Finish]string{ToolCalls: "tool_use", Length: "max_tokens", Stop: "end_turn"}[c.finish()]
	if c.finish() == Stop && c.Stopped != "" {
		why, sequence = "stop_sequence", &c.Stopped
	}
	return &why, sequence
}

// Count returns the body that says how many tokens a prompt of Messages has.
func Count(tokens int) []byte {
	return marshal(struct {
		InputTokens int `json:"input_tokens"`
	}{tokens})
}
