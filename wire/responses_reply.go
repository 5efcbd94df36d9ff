package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// response is the JSON of a response. It holds the sampled reply and repeats the settings
// of its request.
type response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	CreatedAt         int64              `json:"created_at"`
	Status            string             `json:"status"`
	Background        bool               `json:"background"`
	Error             *string            `json:"error"`
	IncompleteDetails *incompleteDetails `json:"incomplete_details"`
	Instructions      json.RawMessage    `json:"instructions"`
	MaxOutputTokens   json.RawMessage    `json:"max_output_tokens"`
	MaxToolCalls      json.RawMessage    `json:"max_tool_calls"`
	Model             string             `json:"model"`
	Output            []any              `json:"output"`
	ParallelToolCalls json.RawMessage    `json:"parallel_tool_calls"`
	PreviousID        *string            `json:"previous_response_id"`
	Reasoning         json.RawMessage    `json:"reasoning"`
	ServiceTier       string             `json:"service_tier"`
	Store             json.RawMessage    `json:"store"`
	Temperature       json.RawMessage    `json:"temperature"`
	Text              json.RawMessage    `json:"text"`
	ToolChoice        json.RawMessage    `json:"tool_choice"`
	Tools             json.RawMessage    `json:"tools"`
	TopLogprobs       int                `json:"top_logprobs"`
	TopP              json.RawMessage    `json:"top_p"`
	Truncation        json.RawMessage    `json:"truncation"`
	Usage             *responseUsage     `json:"usage"`
	User              json.RawMessage    `json:"user"`
	Metadata          json.RawMessage    `json:"metadata"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	InputTokens   int           `json:"input_tokens"`
	InputDetails  inputDetails  `json:"input_tokens_details"`
	OutputTokens  int           `json:"output_tokens"`
	OutputDetails outputDetails `json:"output_tokens_details"`
	TotalTokens   int           `json:"total_tokens"`
}

type inputDetails struct {
	CachedTokens     int `json:"cached_tokens"`
	CacheWriteTokens int `json:"cache_write_tokens"`
}

type outputDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// responseHead returns a response whose result is not known yet.
func (r *Request) responseHead(head Reply) response {
	var asked map[string]json.RawMessage
	_ = json.Unmarshal(r.Body, &asked) // a request that was made by hand has none
	or := func(name, otherwise string) json.RawMessage {
		if given(asked[name]) {
			return asked[name]
		}
		return json.RawMessage(otherwise)
	}
	return response{
		ID: Responses.ReplyID(head.ID), Object: "response", CreatedAt: head.Created.Unix(), Status: "in_progress",
		Model: head.Model, Output: []any{}, PreviousID: nullable(r.Previous), ServiceTier: "default", TopLogprobs: r.TopLogprobs,
		Instructions: or("instructions", `null`), MaxOutputTokens: or("max_output_tokens", `null`), MaxToolCalls: or("max_tool_calls", `null`),
		ParallelToolCalls: or("parallel_tool_calls", `true`), Reasoning: or("reasoning", `{"effort":null,"summary":null}`),
		Store: or("store", `true`), Temperature: or("temperature", `1`), Text: or("text", `{"format":{"type":"text"}}`),
		ToolChoice: or("tool_choice", `"auto"`), Tools: or("tools", `[]`), TopP: or("top_p", `1`),
		Truncation: or("truncation", `"disabled"`), User: or("user", `null`), Metadata: or("metadata", `{}`),
	}
}

// response returns a whole response with its items.
func (r *Request) response(reply Reply, output []any) response {
	body, c := r.responseHead(reply), reply.Choices[0]
	body.Status, body.Output = "completed", output
	if c.finish() == Length {
		body.Status, body.IncompleteDetails = "incomplete", &incompleteDetails{"max_output_tokens"}
	}
	body.Usage = &responseUsage{InputTokens: reply.PromptTokens, OutputTokens: c.Tokens, TotalTokens: reply.PromptTokens + c.Tokens}
	return body
}

type messageItem struct {
	ID      string       `json:"id"`
	Type    string       `json:"type"` // "message"
	Status  string       `json:"status"`
	Role    dialog.Role  `json:"role"`
	Content []outputText `json:"content"`
}

type outputText struct {
	Type        string        `json:"type"` // "output_text"
	Text        string        `json:"text"`
	Annotations []any         `json:"annotations"`
	Logprobs    []openLogprob `json:"logprobs"`
}

type reasoningItem struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"` // "reasoning"
	Status  string          `json:"status"`
	Summary []any           `json:"summary"`
	Content []reasoningText `json:"content"`
}

type reasoningText struct {
	Type string `json:"type"` // "reasoning_text"
	Text string `json:"text"`
}

type callItem struct {
	ID        string `json:"id"`
	Type      string `json:"type"` // "function_call"
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// items returns the output of a reply. Reasoning comes first, unless it came late: a
// stream can't put it before text that it has sent.
func items(reply Reply, late bool) []any {
	c := reply.Choices[0]
	all := []any{}
	think := func() {
		if c.Message.Reasoning != "" {
			all = append(all, reasoningOf(reply.ID, "completed", c.Message.Reasoning))
		}
	}
	if !late {
		think()
	}
	if c.hasText() {
		status := "completed"
		if c.finish() == Length {
			status = "incomplete"
		}
		all = append(all, messageOf(reply.ID, status, textOf(c.Message.Content, c.Logprobs)))
	}
	if late {
		think()
	}
	for k, call := range c.Message.ToolCalls {
		all = append(all, callOf(reply.ID, k, "completed", call, call.Function.Arguments))
	}
	return all
}

func messageOf(id, status string, content ...outputText) messageItem {
	if content == nil {
		content = []outputText{}
	}
	return messageItem{messageID(id), "message", status, dialog.Assistant, content}
}

func textOf(text string, logprobs []Token) outputText {
	return outputText{"output_text", text, []any{}, listedLogprobs(logprobs)}
}

// listedLogprobs returns log-probabilities that always list their bytes.
func listedLogprobs(tokens []Token) []openLogprob {
	all := slices.Clone(tokens)
	for i, t := range all {
		if t.Bytes == nil {
			all[i].Bytes = []byte(t.Text)
		}
	}
	return openLogprobs(all)
}

func reasoningOf(id, status string, texts ...string) reasoningItem {
	item := reasoningItem{reasoningID(id), "reasoning", status, []any{}, []reasoningText{}}
	for _, text := range texts {
		item.Content = append(item.Content, reasoningText{"reasoning_text", text})
	}
	return item
}

func callOf(id string, k int, status string, call dialog.ToolCall, arguments string) callItem {
	return callItem{callID(id, k), "function_call", status, call.ID, call.Function.Name, arguments}
}

// ResolveItems completes the dialog of a request that refers to items of earlier replies.
// said returns the reply with an id such as resp_1, if there is one to refer to. The
// error is a *Failure.
func (r *Request) ResolveItems(said func(reply string) (dialog.Message, bool)) error {
	if len(r.References) == 0 {
		return nil
	}
	err := r.readItems(func(id string) (item, bool) {
		stem, of := itemID(id)
		if of == nil {
			return item{}, false
		}
		m, known := said(Responses.ReplyID(stem))
		if !known {
			return item{}, false
		}
		return of(m)
	})
	if err == nil {
		r.References = nil
	}
	return err
}

// itemID splits the id of an item into the id that all parts of its reply share, and the
// function that makes the item from the reply.
func itemID(id string) (stem string, of func(dialog.Message) (item, bool)) {
	kind, stem, _ := strings.Cut(id, "_")
	switch kind {
	case "msg":
		return stem, func(m dialog.Message) (item, bool) {
			return item{Type: "message", Role: "assistant", Content: marshal(m.Content)}, true
		}
	case "rs":
		return stem, func(m dialog.Message) (item, bool) {
			return item{Type: "reasoning", Content: marshal([]reasoningText{{"reasoning_text", m.Reasoning}})}, m.Reasoning != ""
		}
	case "fc":
		last := max(strings.LastIndexByte(stem, '_'), 0)
		k, err := strconv.Atoi(strings.TrimPrefix(stem[last:], "_"))
		return stem[:last], func(m dialog.Message) (item, bool) {
			if err != nil || k < 0 || k >= len(m.ToolCalls) {
				return item{}, false
			}
			call := m.ToolCalls[k]
			return item{Type: "function_call", CallID: call.ID, Name: call.Function.Name, Arguments: json.RawMessage(marshal(call.Function.Arguments))}, true
		}
	}
	return "", nil
}

// Deleted returns the body that confirms that the response with an id, such as resp_1,
// was deleted.
func Deleted(id string) []byte {
	return marshal(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{id, "response", true})
}

// InputItems returns the body that lists the input of a request of Responses, the last
// item first. Items that came without an id get one derived from the reply's.
func (r *Request) InputItems(id string) []byte {
	var asked struct {
		Input json.RawMessage `json:"input"`
	}
	_ = json.Unmarshal(r.Body, &asked) // a request that was made by hand has none
	items := []map[string]any{}
	if json.Unmarshal(asked.Input, &items) != nil {
		items = []map[string]any{{"role": "user", "content": stringOf(asked.Input)}}
	}
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = keptItem(item, fmt.Sprintf("item_%s_%d", id, i))
	}
	slices.Reverse(items)
	slices.Reverse(ids)
	list := struct {
		Object  string           `json:"object"`
		Data    []map[string]any `json:"data"`
		FirstID *string          `json:"first_id"`
		LastID  *string          `json:"last_id"`
		HasMore bool             `json:"has_more"`
	}{Object: "list", Data: items}
	if len(ids) > 0 {
		list.FirstID, list.LastID = &ids[0], &ids[len(ids)-1]
	}
	return marshal(list)
}

// keptItem completes an item for being listed, and returns its id.
func keptItem(item map[string]any, id string) string {
	if given, ok := item["id"].(string); ok && given != "" {
		id = given
	}
	item["id"] = id
	if _, ok := item["type"]; !ok {
		item["type"] = "message"
	}
	if text, ok := item["content"].(string); ok && item["type"] == "message" {
		kind := "input_text"
		if item["role"] == "assistant" {
			kind = "output_text"
		}
		item["content"] = []any{map[string]any{"type": kind, "text": text}}
	}
	if _, ok := item["status"]; !ok {
		item["status"] = "completed"
	}
	return id
}

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
