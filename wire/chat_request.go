package wire

import (
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
