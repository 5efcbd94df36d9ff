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

// messagesWriter streams a reply of Messages: block after block, one open at a time.
type messagesWriter struct {
	head  Reply
	open  string // the type of the open block, if one is
	index int    // of the open block, or of the next one
}

// messagesEvent is the JSON of an event of Messages; each type has some of the
// fields.
type messagesEvent struct {
	Type    string         `json:"type"`
	Message *messagesReply `json:"message,omitempty"`
	Index   *int           `json:"index,omitempty"`
	Block   any            `json:"content_block,omitempty"`
	Delta   any            `json:"delta,omitempty"`
	Usage   *messagesUsage `json:"usage,omitempty"`
}

// blockDelta continues a block; each type has one of the texts.
type blockDelta struct {
	Type        string  `json:"type"`
	Text        *string `json:"text,omitempty"`
	Thinking    *string `json:"thinking,omitempty"`
	Signature   *string `json:"signature,omitempty"`
	PartialJSON *string `json:"partial_json,omitempty"`
}

// messageDelta says why a message ended.
type messageDelta struct {
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

func (s *messagesWriter) add(e *events, event messagesEvent) { e.add(event.Type, event) }

func (s *messagesWriter) begin(e *events) {
	s.add(e, messagesEvent{Type: "message_start", Message: new(messagesHead(s.head))})
}

func (s *messagesWriter) start(e *events, kind string, block any) {
	if s.open == kind {
		return
	}
	s.stop(e)
	s.open = kind
	s.add(e, messagesEvent{Type: "content_block_start", Index: new(s.index), Block: block})
}

func (s *messagesWriter) delta(e *events, delta blockDelta) {
	s.add(e, messagesEvent{Type: "content_block_delta", Index: new(s.index), Delta: delta})
}

// stop closes the open block.
func (s *messagesWriter) stop(e *events) {
	if s.open == "" {
		return
	}
	if s.open == "thinking" {
		s.delta(e, blockDelta{Type: "signature_delta", Signature: &s.head.ID})
	}
	s.add(e, messagesEvent{Type: "content_block_stop", Index: new(s.index)})
	s.open = ""
	s.index++
}

func (s *messagesWriter) reasoning(e *events, _ int, text string) {
	s.start(e, "thinking", thinkingBlock{Type: "thinking"})
	s.delta(e, blockDelta{Type: "thinking_delta", Thinking: &text})
}

func (s *messagesWriter) content(e *events, _ int, text string, _ []Token) {
	s.start(e, "text", textBlock{Type: "text"})
	if text != "" {
		s.delta(e, blockDelta{Type: "text_delta", Text: &text})
	}
}

func (s *messagesWriter) end(e *events, reply Reply) {
	c := reply.Choices[0]
	s.stop(e)
	for _, call := range c.Message.ToolCalls {
		s.start(e, "tool_use", toolUse(call, json.RawMessage(`{}`)))
		s.delta(e, blockDelta{Type: "input_json_delta", PartialJSON: &call.Function.Arguments})
		s.stop(e)
	}
	var delta messageDelta
	delta.StopReason, delta.StopSequence = c.stopReason()
	s.add(e, messagesEvent{
		Type: "message_delta", Delta: delta,
		Usage: &messagesUsage{InputTokens: reply.PromptTokens, OutputTokens: c.Tokens},
	})
	s.add(e, messagesEvent{Type: "message_stop"})
}

func (s *messagesWriter) keepalive(e *events) { s.add(e, messagesEvent{Type: "ping"}) }

func (s *messagesWriter) fail(e *events, f *Failure) { e.add("error", f.ofMessages()) }
