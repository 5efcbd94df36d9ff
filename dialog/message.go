package dialog

import (
	"encoding/json"
)

// Role is who speaks.
type Role string

// The roles. "developer" is read as System.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolReply Role = "tool"
)

// Message is one turn of a dialog. Its JSON is that of an OpenAI chat message.
type Message struct {
	Role    Role   `json:"role"`
	Content string `json:"content"`
	// Reasoning is what a model thought before it spoke, where its codec tells the
	// two apart.
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	// Name is the speaker's, where there is one.
	Name string `json:"name,omitempty"`
	// Weight 0 keeps an assistant message of a demonstration out of the loss, as
	// in OpenAI's fine-tuning files; nil means 1.
	Weight *int `json:"weight,omitempty"`
}

// ToolCall is a request of the assistant to run a tool.
type ToolCall struct {
	ID       string   `json:"id"`
	Type     string   `json:"type"` // "function"
	Function Function `json:"function"`
}

// Function names the tool; Arguments is JSON in a string.
type Function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Tool is what a request offers to the assistant.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // JSON Schema
}

// Dialog is a whole conversation, such as a demonstration.
type Dialog struct {
	Messages []Message `json:"messages"`
	Tools    []Tool    `json:"tools,omitempty"`
}
