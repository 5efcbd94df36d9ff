package dialog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Role is the role of a message's speaker.
type Role string

// The roles. "developer" is read as System.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolReply Role = "tool"
)

// Message is one turn of a dialog. Its JSON has the form of an OpenAI chat message.
type Message struct {
	Role    Role   `json:"role"`
	Content string `json:"content"`
	// Reasoning is the model's text before its answer, if its codec separates the two.
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []ToolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
	// Name is the name of the speaker, if there is one.
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

// Tool is a tool that a request offers to the assistant.
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

// Fingerprint returns a digest of the roles in messages, of their texts without white
// space, and of the ids and names of their tool calls. Equal fingerprints show that two
// records are of the same dialog. Thoughts and the arguments of tool calls are left out,
// because not every record has them. The fingerprint of no messages is empty.
func Fingerprint(messages []Message) string {
	if len(messages) == 0 {
		return ""
	}
	var b strings.Builder
	add := func(text string) { b.WriteString(strconv.Itoa(len(text)) + ":" + text) }
	for _, m := range messages {
		add(string(m.Role))
		add(strings.Join(strings.Fields(m.Content), ""))
		add(m.ToolCallID)
		for _, c := range m.ToolCalls {
			add(c.ID)
			add(c.Function.Name)
		}
		b.WriteByte('\n')
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}

// Instructions splits a dialog into its system messages and all others.
func Instructions(messages []Message) (instructions, rest []Message) {
	for _, m := range messages {
		if m.Role == System {
			instructions = append(instructions, m)
		} else {
			rest = append(rest, m)
		}
	}
	return instructions, rest
}

// Latest returns the messages after the assistant's last one. If the dialog ends with a
// message of the assistant, which the assistant then continues, Latest returns all
// messages.
func Latest(messages []Message) []Message {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == Assistant && i < len(messages)-1 {
			return messages[i+1:]
		}
		if messages[i].Role == Assistant {
			break
		}
	}
	return messages
}

// HidesTools reports whether a codec shows the tools to the model at all: it returns true
// if the dialog has the same tokens with and without them. It returns false for a dialog
// that can't be rendered with the tools, or without them.
func HidesTools(c Codec, messages []Message, tools []Tool) bool {
	with, err := c.Prompt(messages, tools)
	if err != nil {
		return false
	}
	without, err := c.Prompt(messages, nil)
	return err == nil && slices.Equal(with, without)
}

// CheckTools returns an error if a spec names a parser of tool calls, but the codec's
// template does not show the model the tools, its calls or their results. parser is the
// parser's name, or empty.
func CheckTools(c Codec, parser string) error {
	if parser == "" {
		return nil
	}
	t, ok := c.(*template)
	if !ok {
		return nil
	}
	const name = "xqtoolxq"
	tools := []Tool{tried(name)}
	ask := Message{Role: User, Content: "Hello"}
	var rendered int
	var failure error
	for _, messages := range [][]Message{{ask}, {{Role: System, Content: "You help."}, ask}} {
		text, err := t.render.dialog(messages, tools, true)
		if err != nil {
			failure = err // many templates refuse messages of the system
			continue
		}
		rendered++
		if strings.Contains(t.render.guard.Unmark(text), name) {
			failure, rendered = nil, 0
			break
		}
	}
	switch {
	case rendered > 0:
		return fmt.Errorf("%w: the chat template leaves out the tools that are offered, so model.tool_parser %s would read calls of tools that the model never sees: "+
			"give a template that writes `tools` as model.template (%s), or leave model.tool_parser out and let the agent describe its tools", ErrBundle, parser, exampleTemplates)
	case failure != nil:
		return fmt.Errorf("%w: model.tool_parser %s: the chat template does not render a dialog with tools: %w", ErrBundle, parser, failure)
	case t.unwritten != nil:
		return fmt.Errorf("%w: model.tool_parser %s: %w", ErrBundle, parser, t.unwritten)
	}
	return nil
}

// Gaps are what a codec can't do with dialogs. Each of them is nil if the codec can.
type Gaps struct {
	// Tools is why no tools can be offered.
	Tools error
	// Replies and Calls are why replies without and with tool calls can't be continued
	// token by token.
	Replies, Calls error
}

// GapsOf returns what a codec can't do.
func GapsOf(c Codec) Gaps {
	t, ok := c.(*template)
	if !ok {
		return Gaps{}
	}
	g := Gaps{Tools: t.unwritten, Replies: t.unbridged, Calls: t.unbridgedCalls}
	if t.format == nil {
		g.Tools = errNoFormat
	}
	return g
}

// Shared counts the messages at the beginning of a dialog that come from the dialog
// before it. The reply to that dialog counts, too.
func Shared(before, now []Message) int {
	n := 0
	for n < len(before) && n < len(now) && reflect.DeepEqual(before[n], now[n]) {
		n++
	}
	if n == len(before) && n < len(now) && now[n].Role == Assistant {
		n++
	}
	return n
}
