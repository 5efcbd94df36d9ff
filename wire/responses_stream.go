package wire

import "strings"

// responsesWriter streams a reply of Responses: item after item, one open at a time.
type responsesWriter struct {
	request *Request
	head    Reply
	number  int    // of the next event
	open    string // the type of the open item, if one is
	index   int    // of the open item, or of the next one

	text, thoughts   strings.Builder
	logprobs         []Token
	hasContent, late bool // there was text; there was reasoning after it
}

// responseEvent is the JSON of an event of Responses; each type has some of the
// fields.
type responseEvent struct {
	Type         string         `json:"type"`
	Number       int            `json:"sequence_number"`
	Response     *response      `json:"response,omitempty"`
	OutputIndex  *int           `json:"output_index,omitempty"`
	Item         any            `json:"item,omitempty"`
	ItemID       string         `json:"item_id,omitempty"`
	ContentIndex *int           `json:"content_index,omitempty"`
	Part         any            `json:"part,omitempty"`
	Delta        *string        `json:"delta,omitempty"`
	Text         *string        `json:"text,omitempty"`
	Logprobs     *[]openLogprob `json:"logprobs,omitempty"`
	Name         string         `json:"name,omitempty"`
	Arguments    *string        `json:"arguments,omitempty"`
}

// responseFailure is the event of a failure.
type responseFailure struct {
	Type   string `json:"type"` // "error", before the kind of the error
	Number int    `json:"sequence_number"`
	openError
}

func (s *responsesWriter) add(e *events, event responseEvent) {
	event.Type = "response." + event.Type
	event.Number = s.number
	s.number++
	e.add(event.Type, event)
}

// item writes an event about the open item.
func (s *responsesWriter) item(e *events, kind string, item any) {
	s.add(e, responseEvent{Type: "output_item." + kind, OutputIndex: new(s.index), Item: item})
}

// part writes an event about the one part of the open item.
func (s *responsesWriter) part(e *events, event responseEvent) {
	event.OutputIndex, event.ContentIndex = new(s.index), new(0)
	event.ItemID = messageID(s.head.ID)
	if s.open == "reasoning" {
		event.ItemID = reasoningID(s.head.ID)
	}
	s.add(e, event)
}

func (s *responsesWriter) begin(e *events) {
	head := s.request.responseHead(s.head)
	s.add(e, responseEvent{Type: "created", Response: &head})
	s.add(e, responseEvent{Type: "in_progress", Response: &head})
}

func (s *responsesWriter) reasoning(e *events, _ int, text string) {
	if s.hasContent {
		s.late = true // it is written at the end, when it is known how the text ended
		return
	}
	s.writeReasoning(e, text)
}

func (s *responsesWriter) writeReasoning(e *events, text string) {
	if s.open != "reasoning" {
		s.open = "reasoning"
		s.item(e, "added", reasoningOf(s.head.ID, "in_progress"))
		s.part(e, responseEvent{Type: "content_part.added", Part: reasoningText{Type: "reasoning_text"}})
	}
	s.thoughts.WriteString(text)
	s.part(e, responseEvent{Type: "reasoning_text.delta", Delta: &text})
}

func (s *responsesWriter) content(e *events, _ int, text string, logprobs []Token) {
	if s.open != "message" {
		s.close(e, "completed")
		s.open, s.hasContent = "message", true
		s.item(e, "added", messageOf(s.head.ID, "in_progress"))
		s.part(e, responseEvent{Type: "content_part.added", Part: textOf("", nil)})
	}
	s.text.WriteString(text)
	s.logprobs = append(s.logprobs, logprobs...)
	if text != "" || len(logprobs) > 0 {
		s.part(e, responseEvent{Type: "output_text.delta", Delta: &text, Logprobs: new(listedLogprobs(logprobs))})
	}
}

// close ends the open item; a message ends with a status.
func (s *responsesWriter) close(e *events, status string) {
	switch s.open {
	case "":
		return
	case "reasoning":
		text := s.thoughts.String()
		s.part(e, responseEvent{Type: "reasoning_text.done", Text: &text})
		s.part(e, responseEvent{Type: "content_part.done", Part: reasoningText{"reasoning_text", text}})
		s.item(e, "done", reasoningOf(s.head.ID, "completed", text))
	case "message":
		whole := textOf(s.text.String(), s.logprobs)
		s.part(e, responseEvent{Type: "output_text.done", Text: &whole.Text, Logprobs: &whole.Logprobs})
		s.part(e, responseEvent{Type: "content_part.done", Part: whole})
		s.item(e, "done", messageOf(s.head.ID, status, whole))
	}
	s.open = ""
	s.index++
}

func (s *responsesWriter) end(e *events, reply Reply) {
	whole := s.request.response(reply, items(reply, s.late))
	s.close(e, whole.Status)
	if s.late {
		s.writeReasoning(e, reply.Choices[0].Message.Reasoning)
		s.close(e, "completed")
	}
	for k, call := range reply.Choices[0].Message.ToolCalls {
		s.call(e, callOf(s.head.ID, k, "completed", call, call.Function.Arguments))
	}
	s.add(e, responseEvent{Type: whole.Status, Response: &whole})
}

// call writes a call of a function from its beginning to its end.
func (s *responsesWriter) call(e *events, whole callItem) {
	begun := whole
	begun.Status, begun.Arguments = "in_progress", ""
	s.item(e, "added", begun)
	for _, event := range []responseEvent{
		{Type: "function_call_arguments.delta", Delta: &whole.Arguments},
		{Type: "function_call_arguments.done", Name: whole.Name, Arguments: &whole.Arguments},
	} {
		event.OutputIndex, event.ItemID = new(s.index), whole.ID
		s.add(e, event)
	}
	s.item(e, "done", whole)
	s.index++
}

func (s *responsesWriter) keepalive(e *events) { e.comment("keepalive") }

func (s *responsesWriter) fail(e *events, f *Failure) {
	e.add("error", responseFailure{"error", s.number, f.ofOpenAI()})
	s.number++
}
