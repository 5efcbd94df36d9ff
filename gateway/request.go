package gateway

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// chatRequest is what the gateway understands of a chat completion request.
type chatRequest struct {
	model       string
	messages    []dialog.Message
	tools       []dialog.Tool
	forbidTools bool // tool_choice is "none"
	maxTokens   int  // 0 if not given
	temperature *float64
	seed        json.RawMessage
	logprobs    bool
}

// usable lists the tools that a reply may call.
func (r *chatRequest) usable() []dialog.Tool {
	if r.forbidTools {
		return nil
	}
	return r.tools
}

// wireRequest is the JSON of a chat completion request.
type wireRequest struct {
	Model               any             `json:"model"`
	Messages            []wireMessage   `json:"messages"`
	Tools               []wireTool      `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	N                   *float64        `json:"n"`
	Stream              *bool           `json:"stream"`
	MaxTokens           *float64        `json:"max_tokens"`
	MaxCompletionTokens *float64        `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	Seed                json.RawMessage `json:"seed"`
	Logprobs            *bool           `json:"logprobs"`
}

type wireMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

type wireTool struct {
	Type     string      `json:"type"`
	Function dialog.Tool `json:"function"`
}

// decodeChat reads a request as clients write it. Fields that are not in
// wireRequest are ignored.
func decodeChat(body []byte) (*chatRequest, error) {
	var wire wireRequest
	if err := unmarshal(body, &wire); err != nil {
		return nil, err
	}
	request := &chatRequest{temperature: wire.Temperature, seed: wire.Seed, logprobs: wire.Logprobs != nil && *wire.Logprobs}
	request.model, _ = wire.Model.(string)
	if wire.N != nil && *wire.N != 1 {
		return nil, invalid("n", "n is %v: one choice for each request is all there is", *wire.N)
	}
	if wire.Stream != nil && *wire.Stream {
		return nil, invalid("stream", "streaming is not supported: ask with stream false")
	}
	if len(wire.Messages) == 0 {
		return nil, invalid("messages", "messages is missing or empty")
	}
	var err error
	if request.maxTokens, err = wire.limit(); err != nil {
		return nil, err
	}
	if request.forbidTools, err = forbidsTools(wire.ToolChoice); err != nil {
		return nil, err
	}
	for i, t := range wire.Tools {
		switch {
		case t.Type != "function" && t.Type != "":
			return nil, invalid(fmt.Sprintf("tools[%d].type", i), "tools of type %q are not supported", t.Type)
		case t.Function.Name == "":
			return nil, invalid(fmt.Sprintf("tools[%d].function.name", i), "the tool has no name")
		}
		request.tools = append(request.tools, t.Function)
	}
	for i, m := range wire.Messages {
		message, err := m.message(fmt.Sprintf("messages[%d]", i))
		if err != nil {
			return nil, err
		}
		request.messages = append(request.messages, message)
	}
	return request, nil
}

// limit is the most tokens that the client wants, 0 if it does not say.
func (w *wireRequest) limit() (int, error) {
	name, limit := "max_completion_tokens", w.MaxCompletionTokens
	if limit == nil {
		name, limit = "max_tokens", w.MaxTokens
	}
	switch {
	case limit == nil:
		return 0, nil
	case *limit < 1 || *limit != math.Trunc(*limit):
		return 0, invalid(name, "%s is %v: want an integer of at least 1", name, *limit)
	}
	return int(min(*limit, math.MaxInt32)), nil
}

func forbidsTools(choice json.RawMessage) (bool, error) {
	switch string(choice) {
	case "", "null", `"auto"`:
		return false, nil
	case `"none"`:
		return true, nil
	}
	return false, invalid("tool_choice", `tool_choice is %s: only "auto" and "none" are supported`, choice)
}

func (m wireMessage) message(at string) (dialog.Message, error) {
	out := dialog.Message{Role: dialog.Role(m.Role), ToolCallID: m.ToolCallID}
	switch out.Role {
	case "developer":
		out.Role = dialog.System
	case dialog.System, dialog.User, dialog.Assistant, dialog.ToolReply:
	default:
		return out, invalid(at+".role", "role %q is not supported", m.Role)
	}
	if len(m.ToolCalls) > 0 && out.Role != dialog.Assistant {
		return out, invalid(at+".tool_calls", "only the assistant calls tools")
	}
	var err error
	if out.Content, err = text(m.Content, at+".content"); err != nil {
		return out, err
	}
	for _, call := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, dialog.ToolCall{
			ID: call.ID, Type: "function",
			Function: dialog.Function{Name: call.Function.Name, Arguments: stringOrRaw(call.Function.Arguments)},
		})
	}
	return out, nil
}

// text is the text of a message's content: a string, null, or parts.
func text(content json.RawMessage, at string) (string, error) {
	if len(content) == 0 || string(content) == "null" {
		return "", nil
	}
	var plain string
	if json.Unmarshal(content, &plain) == nil {
		return plain, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return "", invalid(at, "content is neither text nor a list of parts")
	}
	var all strings.Builder
	for i, raw := range parts {
		if json.Unmarshal(raw, &plain) == nil && raw[0] == '"' {
			all.WriteString(plain)
			continue
		}
		var part struct{ Type, Text, Refusal string }
		if json.Unmarshal(raw, &part) != nil {
			return "", invalid(fmt.Sprintf("%s[%d]", at, i), "the part is not an object with a type and text")
		}
		switch part.Type {
		case "text", "input_text", "output_text", "refusal":
			all.WriteString(part.Text + part.Refusal)
		default:
			return "", invalid(fmt.Sprintf("%s[%d].type", at, i), "parts of type %q are not supported", part.Type)
		}
	}
	return all.String(), nil
}

// stringOrRaw is the string that raw holds, or raw itself: some clients send
// arguments as an object.
func stringOrRaw(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
