package wire

import (
	"bytes"
	"encoding/json"

	"github.com/fulgurite/fulgurite/dialog"
)

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
