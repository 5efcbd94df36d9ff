package wire

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog"
)

// chatRequest is the JSON of a request of Chat, as far as it matters.
type chatRequest struct {
	settings
	Messages            []chatTurn      `json:"messages"`
	Tools               []chatTool      `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ParallelToolCalls   *bool           `json:"parallel_tool_calls"`
	Functions           []dialog.Tool   `json:"functions"`
	FunctionCall        json.RawMessage `json:"function_call"`
	N                   *float64        `json:"n"`
	MaxTokens           *float64        `json:"max_tokens"`
	MaxCompletionTokens *float64        `json:"max_completion_tokens"`
	Stop                json.RawMessage `json:"stop"`
	Logprobs            *bool           `json:"logprobs"`
	TopLogprobs         *float64        `json:"top_logprobs"`
	ResponseFormat      *openFormat     `json:"response_format"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	Continue            *bool           `json:"continue_final_message"`
	GenerationPrompt    *bool           `json:"add_generation_prompt"`
}

// chatTurn is a message of Chat.
type chatTurn struct {
	Role             string          `json:"role"`
	Content          json.RawMessage `json:"content"`
	Reasoning        json.RawMessage `json:"reasoning"`
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	ToolCalls        []chatToolCall  `json:"tool_calls"`
	FunctionCall     *functionCall   `json:"function_call"`
	ToolCallID       string          `json:"tool_call_id"`
	Name             json.RawMessage `json:"name"`
	Prefix           *bool           `json:"prefix"`
	Partial          *bool           `json:"partial"`
}

type chatToolCall struct {
	ID       string       `json:"id"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func (r *Request) decodeChat(body []byte) error {
	var w chatRequest
	if err := Unmarshal(body, &w); err != nil {
		return err
	}
	r.readSettings(w.settings)
	r.Serial = w.ParallelToolCalls != nil && !*w.ParallelToolCalls
	r.Logprobs = w.Logprobs != nil && *w.Logprobs
	r.Usage = w.StreamOptions != nil && w.StreamOptions.IncludeUsage
	if len(w.Messages) == 0 {
		return Invalid("messages", "messages is missing or empty")
	}
	name, most := "max_completion_tokens", w.MaxCompletionTokens
	if most == nil {
		name, most = "max_tokens", w.MaxTokens
	}
	if err := r.readN(w.N); err != nil {
		return err
	}
	if err := r.readLimit(name, most); err != nil {
		return err
	}
	if err := r.readStops("stop", w.Stop); err != nil {
		return err
	}
	if err := r.readAlternatives("top_logprobs", w.TopLogprobs); err != nil {
		return err
	}
	if err := r.readFormat("response_format", w.ResponseFormat); err != nil {
		return err
	}
	if err := r.readTools(w.Tools); err != nil {
		return err
	}
	if err := r.readFunctions(w.Functions); err != nil {
		return err
	}
	if err := r.readToolChoice(w.ToolChoice); err != nil {
		return err
	}
	if err := r.readFunctionCall(w.FunctionCall); err != nil {
		return err
	}
	r.readPrefill(w)
	return r.chatDialog(w.Messages)
}

// readPrefill notes whether the reply is asked to continue the last message. OpenAI's API
// has no field for that; vLLM and SGLang, DeepSeek and Mistral, and Qwen and Moonshot have
// one each.
func (r *Request) readPrefill(w chatRequest) {
	last := len(w.Messages) - 1
	for _, wish := range []*bool{w.Continue, w.Messages[last].Prefix, w.Messages[last].Partial} {
		if wish != nil && *wish {
			r.Prefill = at("messages", last)
		}
	}
	if w.GenerationPrompt != nil && !*w.GenerationPrompt {
		r.Prefill = at("messages", last)
	}
}

// readFunctionCall reads the choice that went with functions.
func (r *Request) readFunctionCall(raw json.RawMessage) error {
	var named struct {
		Name string `json:"name"`
	}
	switch word := stringOf(raw); {
	case !given(raw) || word == "auto":
		return nil
	case word == "none":
		r.Choice = ToolChoice{None: true}
		return nil
	case json.Unmarshal(raw, &named) != nil || named.Name == "":
		return Invalid("function_call", `function_call is neither "auto" nor "none" nor an object with a name`)
	}
	if err := r.checkOffered("function_call", []string{named.Name}); err != nil {
		return err
	}
	r.Choice = ToolChoice{Required: true, Names: []string{named.Name}}
	return nil
}

func (r *Request) chatDialog(turns []chatTurn) error {
	called := "" // the id given to the last call of a function, which has none
	for i, t := range turns {
		field := at("messages", i)
		if t.Role == "function" && called != "" {
			t.Role, t.ToolCallID = string(dialog.ToolReply), called
		}
		m, err := t.message(field)
		if err != nil {
			return err
		}
		if t.FunctionCall != nil && m.Role == dialog.Assistant {
			called = fmt.Sprintf("function_%d", i)
			m.ToolCalls = append(m.ToolCalls, t.FunctionCall.call(called))
		}
		r.Dialog = append(r.Dialog, m)
	}
	return nil
}

func (t chatTurn) message(field string) (dialog.Message, error) {
	m := dialog.Message{Role: dialog.Role(t.Role), ToolCallID: t.ToolCallID, Name: stringOf(t.Name)}
	switch m.Role {
	case "developer":
		m.Role = dialog.System
	case dialog.System, dialog.User, dialog.Assistant, dialog.ToolReply:
	default:
		return m, unknownRole(field, t.Role)
	}
	if len(t.ToolCalls) > 0 && m.Role != dialog.Assistant {
		return m, Invalid(field+".tool_calls", "only the assistant calls tools")
	}
	var err error
	if m.Content, err = content(t.Content, field+".content", "text", "input_text", "output_text", "refusal"); err != nil {
		return m, err
	}
	if m.Role == dialog.Assistant {
		m.Reasoning = stringOf(t.ReasoningContent)
		if m.Reasoning == "" {
			m.Reasoning = stringOf(t.Reasoning)
		}
	}
	for _, call := range t.ToolCalls {
		m.ToolCalls = append(m.ToolCalls, call.Function.call(call.ID))
	}
	return m, nil
}

// call returns a call of the function with an id. Some clients send arguments as an
// object.
func (f functionCall) call(id string) dialog.ToolCall {
	arguments := stringOf(f.Arguments)
	if given(f.Arguments) && f.Arguments[0] != '"' {
		arguments = string(f.Arguments)
	}
	return dialog.ToolCall{ID: id, Type: "function", Function: dialog.Function{Name: f.Name, Arguments: arguments}}
}

// chatReply is the JSON of a chat completion.
type chatReply struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   openUsage    `json:"usage"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      chatMessage   `json:"message"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

type chatMessage struct {
	Role      dialog.Role       `json:"role"`
	Content   *string           `json:"content"`
	Refusal   *string           `json:"refusal"`
	Reasoning string            `json:"reasoning_content,omitempty"`
	ToolCalls []dialog.ToolCall `json:"tool_calls,omitempty"`
	// FunctionCall answers a request with functions.
	FunctionCall *dialog.Function `json:"function_call,omitempty"`
}

type chatLogprobs struct {
	Content []openLogprob `json:"content"`
	Refusal []openLogprob `json:"refusal"`
}

func (r *Request) chatReply(reply Reply) chatReply {
	body := chatReply{
		ID: Chat.ReplyID(reply.ID), Object: "chat.completion", Created: reply.Created.Unix(), Model: reply.Model,
		Usage: reply.usage(),
	}
	for i, c := range reply.Choices {
		choice := chatChoice{
			Index: i, FinishReason: r.chatFinish(c), Logprobs: r.chatLogprobs(c.Logprobs),
			Message: chatMessage{Role: dialog.Assistant, Content: &c.Message.Content, Reasoning: c.Message.Reasoning},
		}
		choice.Message.ToolCalls, choice.Message.FunctionCall = r.chatCalls(c)
		if len(c.Message.ToolCalls) > 0 && c.Message.Content == "" {
			choice.Message.Content = nil
		}
		body.Choices = append(body.Choices, choice)
	}
	return body
}

// chatCalls returns the calls of a choice in the form of its request: tool calls, or the
// one call of a function.
func (r *Request) chatCalls(c Choice) ([]dialog.ToolCall, *dialog.Function) {
	if r.functions && len(c.Message.ToolCalls) > 0 {
		return nil, &c.Message.ToolCalls[0].Function
	}
	return c.Message.ToolCalls, nil
}

func (r *Request) chatFinish(c Choice) string {
	if r.functions && c.finish() == ToolCalls {
		return "function_call"
	}
	return string(c.finish())
}

func (r *Request) chatLogprobs(tokens []Token) *chatLogprobs {
	if !r.Logprobs {
		return nil
	}
	return &chatLogprobs{Content: openLogprobs(tokens)}
}

// chatWriter streams a reply of Chat.
type chatWriter struct {
	request *Request
	head    Reply
	text    *chatText // nil until there was one
}

// chatText holds the bytes before and after the text in an event that has only text of
// the first choice. Almost all events of a stream are of this kind.
type chatText struct{ before, after []byte }

// chatChunk is the JSON of a piece of a chat completion.
type chatChunk struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []chatPiece     `json:"choices"`
	Usage   json.RawMessage `json:"usage,omitempty"`
}

type chatPiece struct {
	Index        int           `json:"index"`
	Delta        chatDelta     `json:"delta"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type chatDelta struct {
	Role         dialog.Role      `json:"role,omitempty"`
	Content      *string          `json:"content,omitempty"`
	Reasoning    string           `json:"reasoning_content,omitempty"`
	ToolCalls    []chatCallPiece  `json:"tool_calls,omitempty"`
	FunctionCall *dialog.Function `json:"function_call,omitempty"`
}

type chatCallPiece struct {
	Index int `json:"index"`
	dialog.ToolCall
}

func (s *chatWriter) add(e *events, usage json.RawMessage, pieces ...chatPiece) {
	if s.request.Usage && usage == nil {
		usage = json.RawMessage(`null`)
	}
	e.add("", chatChunk{Chat.ReplyID(s.head.ID), "chat.completion.chunk", s.head.Created.Unix(), s.head.Model, pieces, usage})
}

func (s *chatWriter) begin(e *events) {
	for i := range s.request.choices() {
		s.add(e, nil, chatPiece{Index: i, Delta: chatDelta{Role: dialog.Assistant, Content: new("")}})
	}
}

func (s *chatWriter) reasoning(e *events, choice int, text string) {
	s.add(e, nil, chatPiece{Index: choice, Delta: chatDelta{Reasoning: text}})
}

func (s *chatWriter) content(e *events, choice int, text string, logprobs []Token) {
	if text == "" && len(logprobs) == 0 {
		return
	}
	if choice > 0 || s.request.Logprobs {
		s.add(e, nil, chatPiece{Index: choice, Delta: chatDelta{Content: &text}, Logprobs: s.request.chatLogprobs(logprobs)})
		return
	}
	if s.text == nil {
		s.text = s.newText()
	}
	e.Write(s.text.before)
	e.json(text)
	e.Write(s.text.after)
}

// newText returns the two parts of an event around an empty text.
func (s *chatWriter) newText() *chatText {
	const field, empty = `"content":`, `""`
	e := newEvents()
	s.add(e, nil, chatPiece{Delta: chatDelta{Content: new("")}})
	at := bytes.Index(e.Bytes(), []byte(field+empty)) + len(field) // JSON escapes quotes within values
	return &chatText{e.Bytes()[:at:at], e.Bytes()[at+len(empty):]}
}

func (s *chatWriter) end(e *events, reply Reply) {
	for i, c := range reply.Choices {
		calls, function := s.request.chatCalls(c)
		for k, call := range calls {
			s.add(e, nil, chatPiece{Index: i, Delta: chatDelta{ToolCalls: []chatCallPiece{{k, call}}}})
		}
		if function != nil {
			s.add(e, nil, chatPiece{Index: i, Delta: chatDelta{FunctionCall: function}})
		}
		s.add(e, nil, chatPiece{Index: i, FinishReason: new(s.request.chatFinish(c))})
	}
	if s.request.Usage {
		s.add(e, marshal(reply.usage()), []chatPiece{}...)
	}
	e.done()
}

func (s *chatWriter) keepalive(e *events) { e.comment("keepalive") }

func (s *chatWriter) fail(e *events, f *Failure) { e.add("", f.openBody()) }
