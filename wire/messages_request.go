package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// messagesRequest is the JSON of a request of Messages, as far as it matters.
type messagesRequest struct {
	settings
	System        json.RawMessage `json:"system"`
	Messages      []messagesTurn  `json:"messages"`
	Tools         []messagesTool  `json:"tools"`
	ToolChoice    *messagesChoice `json:"tool_choice"`
	MaxTokens     *float64        `json:"max_tokens"`
	StopSequences json.RawMessage `json:"stop_sequences"`
	OutputFormat  *openFormat     `json:"output_format"`
	OutputConfig  struct {
		Format *openFormat `json:"format"`
	} `json:"output_config"`
	MCPServers []json.RawMessage `json:"mcp_servers"`
}

type messagesTurn struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type messagesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type messagesChoice struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	OneCall bool   `json:"disable_parallel_tool_use"`
}

func (r *Request) decodeMessages(body []byte) error {
	var w messagesRequest
	if err := Unmarshal(body, &w); err != nil {
		return err
	}
	r.readSettings(w.settings)
	switch {
	case len(w.Messages) == 0:
		return Invalid("messages", "messages is missing or empty")
	case len(w.MCPServers) > 0:
		return Invalid("mcp_servers", "servers of tools are not called from here: offer their tools")
	}
	if err := r.readLimit("max_tokens", w.MaxTokens); err != nil {
		return err
	}
	if err := r.readStops("stop_sequences", w.StopSequences); err != nil {
		return err
	}
	if err := r.readFormat("output_format", w.OutputFormat); err != nil {
		return err
	}
	if err := r.readFormat("output_config.format", w.OutputConfig.Format); err != nil {
		return err
	}
	if err := r.readMessagesTools(w.Tools); err != nil {
		return err
	}
	if err := r.readMessagesChoice(w.ToolChoice); err != nil {
		return err
	}
	if err := r.readSystem(w.System); err != nil {
		return err
	}
	return r.messagesDialog(w.Messages)
}

func (r *Request) readMessagesTools(tools []messagesTool) error {
	for i, t := range tools {
		field := at("tools", i)
		switch {
		case t.Type != "" && t.Type != "custom":
			return Invalid(field+".type", "the tool %q is not run here: offer tools with an input_schema", t.Type)
		case given(t.InputSchema) && !isObject(t.InputSchema):
			return Invalid(field+".input_schema", "the input_schema is not an object")
		}
		if err := r.addTool(field, dialog.Tool{Name: t.Name, Description: t.Description, Parameters: t.InputSchema}); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) readMessagesChoice(choice *messagesChoice) error {
	if choice == nil {
		return nil
	}
	r.Serial = choice.OneCall
	switch choice.Type {
	case "auto":
		return nil
	case "none":
		r.Choice.None = true
		return nil
	case "any":
		return r.requireCall("tool_choice")
	case "tool":
		return r.requireCall("tool_choice", choice.Name)
	}
	if choice.Type == "" {
		return Invalid("tool_choice.type", `tool_choice has no type: want "auto", "any", "tool" or "none"`)
	}
	return Invalid("tool_choice.type", `tool_choice of type %q is not supported: want "auto", "any", "tool" or "none"`, choice.Type)
}

// readSystem reads the instructions, a text or blocks of it, each of which is a paragraph.
func (r *Request) readSystem(raw json.RawMessage) error {
	all, err := blocks(raw, "system")
	if err != nil {
		return err
	}
	var texts []string
	for i, b := range all {
		if b.Type != "text" {
			return textOnly(at("system", i), b.Type)
		}
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	if len(texts) > 0 {
		r.Dialog = append(r.Dialog, dialog.Message{Role: dialog.System, Content: strings.Join(texts, "\n\n")})
	}
	return nil
}

// messagesDialog reads the turns. One message of the user may hold results of tools and
// text, which become separate turns. The assistant's blocks are one turn.
func (r *Request) messagesDialog(turns []messagesTurn) error {
	for i, t := range turns {
		field := at("messages", i)
		var said []dialog.Message
		var err error
		switch dialog.Role(t.Role) {
		case dialog.User:
			said, err = userBlocks(t.Content, field+".content")
		case dialog.Assistant:
			said, err = assistantBlocks(t.Content, field+".content")
		case dialog.System:
			said = []dialog.Message{{Role: dialog.System}}
			said[0].Content, err = content(t.Content, field+".content", "text")
		default:
			err = unknownRole(field, t.Role)
		}
		if err != nil {
			return err
		}
		r.Dialog = slices.Concat(r.Dialog, said)
	}
	// In this API, a last message of the assistant is the beginning of the reply.
	if last := len(turns) - 1; dialog.Role(turns[last].Role) == dialog.Assistant {
		r.Prefill = at("messages", last)
	}
	return nil
}
