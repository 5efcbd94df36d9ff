package dialog

import (
	"encoding/json"
	"fmt"
	"slices"
)

// HidesTools reports whether a model that reads a dialog in a codec sees nothing of
// the tools: it reads the same as without them. A dialog that can't be rendered
// without tools hides none.
func HidesTools(c Codec, messages []Message, tools []Tool) bool {
	with, err := c.Prompt(messages, tools)
	if err != nil {
		return false
	}
	without, err := c.Prompt(messages, nil)
	return err == nil && slices.Equal(with, without)
}

// CheckTools is an error if a codec that was told how to read tool calls, by the name
// of a parser, has a template that shows the model no tools.
func CheckTools(c Codec, parser string) error {
	if parser == "" {
		return nil
	}
	messages := []Message{{Role: System, Content: "You help."}, {Role: User, Content: "Hello"}}
	tools := []Tool{
		{Name: "look_up", Description: "Look something up.", Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)},
		{Name: "write_down", Description: "Write something down.", Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)},
	}
	if HidesTools(c, messages, tools) && HidesTools(c, messages[1:], tools) {
		return fmt.Errorf("%w: the chat template leaves out the tools that are offered, so model.tool_parser %s would read calls of tools that the model never sees: "+
			"give the model's directory a template that writes `tools`, or leave model.tool_parser out and let the agent describe its tools", ErrBundle, parser)
	}
	return nil
}
