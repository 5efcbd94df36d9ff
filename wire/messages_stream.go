package wire

import "encoding/json"

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
