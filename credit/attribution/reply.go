package attribution

import (
	"encoding/json"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// recordedReply has the parts of a reply of any API that contain text or tool calls.
type recordedReply struct {
	Choices []struct {
		Text    string `json:"text"` // completions
		Message struct {
			Content      string            `json:"content"`
			Reasoning    string            `json:"reasoning_content"`
			ToolCalls    []dialog.ToolCall `json:"tool_calls"`
			FunctionCall *dialog.Function  `json:"function_call"`
		} `json:"message"`
	} `json:"choices"`
	Output  []replyPart `json:"output"`  // responses
	Content []replyPart `json:"content"` // messages
}

// replyPart is an item or a part of an item in the Responses API, or a block in the
// Messages API.
type replyPart struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     json.RawMessage `json:"input"`
	Content   []replyPart     `json:"content"`
	Summary   []replyPart     `json:"summary"`
}

// Replies returns the messages of a recorded reply: one, or one for each choice, and none
// if the reply can't be read.
func Replies(response []byte) []dialog.Message {
	var r recordedReply
	if json.Unmarshal(response, &r) != nil {
		return nil
	}
	var out []dialog.Message
	for _, c := range r.Choices {
		m := dialog.Message{Role: dialog.Assistant, Content: c.Text + c.Message.Content, Reasoning: c.Message.Reasoning, ToolCalls: c.Message.ToolCalls}
		if f := c.Message.FunctionCall; f != nil {
			m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{Function: *f})
		}
		out = append(out, m)
	}
	if parts := append(r.Output, r.Content...); len(parts) > 0 {
		m := dialog.Message{Role: dialog.Assistant}
		for _, p := range parts {
			p.addTo(&m)
		}
		out = append(out, m)
	}
	return out
}

func (p replyPart) addTo(m *dialog.Message) {
	switch p.Type {
	case "message":
		m.Content += p.texts()
	case "text", "output_text":
		m.Content += p.Text
	case "thinking":
		m.Reasoning += p.Thinking
	case "reasoning":
		for _, s := range p.Summary {
			m.Reasoning += s.Text
		}
		m.Reasoning += p.texts()
	case "function_call":
		m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{ID: p.CallID, Function: dialog.Function{Name: p.Name, Arguments: p.Arguments}})
	case "tool_use":
		m.ToolCalls = append(m.ToolCalls, dialog.ToolCall{ID: p.ID, Function: dialog.Function{Name: p.Name, Arguments: string(p.Input)}})
	}
}

func (p replyPart) texts() string {
	var b strings.Builder
	for _, c := range p.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}
