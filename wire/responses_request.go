package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// responsesRequest is the JSON of a request of Responses, as far as it matters.
type responsesRequest struct {
	settings
	Instructions       *string         `json:"instructions"`
	Input              json.RawMessage `json:"input"`
	Tools              []flatTool      `json:"tools"`
	ToolChoice         json.RawMessage `json:"tool_choice"`
	ParallelToolCalls  *bool           `json:"parallel_tool_calls"`
	MaxOutputTokens    *float64        `json:"max_output_tokens"`
	TopLogprobs        *float64        `json:"top_logprobs"`
	Include            []string        `json:"include"`
	PreviousResponseID *string         `json:"previous_response_id"`
	Store              *bool           `json:"store"`
	Text               struct {
		Format *openFormat `json:"format"`
	} `json:"text"`

	Conversation json.RawMessage `json:"conversation"`
	Prompt       json.RawMessage `json:"prompt"`
	Background   *bool           `json:"background"`
}

// flatTool is a tool of Responses.
type flatTool struct {
	Type string `json:"type"`
	dialog.Tool
}

func (r *Request) decodeResponses(body []byte) error {
	var w responsesRequest
	if err := Unmarshal(body, &w); err != nil {
		return err
	}
	r.readSettings(w.settings)
	r.Serial = w.ParallelToolCalls != nil && !*w.ParallelToolCalls
	r.Logprobs = slices.Contains(w.Include, "message.output_text.logprobs")
	r.Forget = w.Store != nil && !*w.Store
	if w.PreviousResponseID != nil {
		r.Previous = *w.PreviousResponseID
	}
	if w.Instructions != nil && *w.Instructions != "" {
		r.Dialog = append(r.Dialog, dialog.Message{Role: dialog.System, Content: *w.Instructions})
	}
	if err := w.checkStored(); err != nil {
		return err
	}
	if err := r.readLimit("max_output_tokens", w.MaxOutputTokens); err != nil {
		return err
	}
	if err := r.readAlternatives("top_logprobs", w.TopLogprobs); err != nil {
		return err
	}
	if err := r.readFormat("text.format", w.Text.Format); err != nil {
		return err
	}
	if err := r.readFlatTools(w.Tools); err != nil {
		return err
	}
	if err := r.readToolChoice(w.ToolChoice); err != nil {
		return err
	}
	return r.readInput(w.Input)
}

// checkStored refuses a request that needs something stored on OpenAI's servers.
func (w *responsesRequest) checkStored() error {
	switch {
	case given(w.Conversation):
		return Invalid("conversation", "conversations are not kept here: use previous_response_id or send the whole input")
	case given(w.Prompt):
		return Invalid("prompt", "stored prompts are not kept here: send instructions and input")
	case w.Background != nil && *w.Background:
		return Invalid("background", "replies are not made in the background: ask with background false")
	}
	return nil
}

// readFlatTools reads the tools of Responses.
func (r *Request) readFlatTools(tools []flatTool) error {
	for i, t := range tools {
		field := at("tools", i)
		switch t.Type {
		case "function":
		case "":
			return Invalid(field+".type", "the tool has no type: offer tools of type \"function\"")
		default:
			return Invalid(field+".type", "the tool %q is not run here: offer tools of type \"function\"", t.Type)
		}
		if err := r.addTool(field, t.Tool); err != nil {
			return err
		}
	}
	return nil
}

// readInput reads the input: a text of the user, or items.
func (r *Request) readInput(raw json.RawMessage) error {
	var items []json.RawMessage
	switch {
	case !given(raw):
		return Invalid("input", "input is missing")
	case raw[0] == '"':
		r.Dialog = append(r.Dialog, dialog.Message{Role: dialog.User, Content: stringOf(raw)})
		return nil
	case json.Unmarshal(raw, &items) != nil:
		return Invalid("input", "input is neither text nor a list of items")
	case len(items) == 0:
		return Invalid("input", "input is empty")
	}
	r.items, r.instructed = items, len(r.Dialog)
	return r.readItems(func(id string) (item, bool) {
		r.References = append(r.References, id)
		return item{Type: reference}, id != ""
	})
}

// readItems builds the dialog from the input's items.
func (r *Request) readItems(resolve func(id string) (item, bool)) error {
	var turns []turn
	for i, raw := range r.items {
		it, err := itemOf(raw, at("input", i), resolve)
		if err != nil {
			return err
		}
		if turns, err = addItem(turns, it, at("input", i)); err != nil {
			return err
		}
	}
	r.Dialog = slices.Clone(r.Dialog[:r.instructed])
	for _, t := range turns {
		r.Dialog = append(r.Dialog, t.Message)
	}
	return nil
}

// reference is the type of an item that refers to an item of an earlier reply.
const reference = "item_reference"

// item is an item of the input of Responses, whichever its type.
type item struct {
	Type string `json:"type"`
	ID   string `json:"id"`

	Role    string          `json:"role"` // message
	Content json.RawMessage `json:"content"`

	CallID    string          `json:"call_id"` // function_call, function_call_output
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Output    json.RawMessage `json:"output"`

	Summary []struct { // reasoning
		Text string `json:"text"`
	} `json:"summary"`
}

// turn is a message that is being built: several items of the assistant form one.
type turn struct {
	dialog.Message
	hasContent bool // it has content, which may be empty
}

// itemOf reads an item, or resolves the one that it refers to.
func itemOf(raw json.RawMessage, field string, resolve func(id string) (item, bool)) (item, error) {
	var i item
	if !isObject(raw) || json.Unmarshal(raw, &i) != nil {
		return i, Invalid(field, "the item is not an object whose fields are texts")
	}
	if i.Type != reference && (i.Type != "" || i.Role != "" || i.ID == "") {
		return i, nil
	}
	resolved, known := resolve(i.ID)
	if !known {
		return i, Invalid(field+".id", "no reply here has the item %q: send the item itself", i.ID)
	}
	return resolved, nil
}

// addItem adds an item to the turns.
func addItem(turns []turn, i item, field string) ([]turn, error) {
	switch {
	case i.Type == reference:
		return turns, nil // ResolveItems puts something there
	case i.Type == "message" || i.Type == "" && i.Role != "":
		return addMessage(turns, i, field)
	case i.Type == "reasoning":
		turns, t := ofAssistant(turns, func(t turn) bool { return len(t.ToolCalls) > 0 || t.hasContent && t.Reasoning != "" })
		t.Reasoning += i.reasoning()
		return turns, nil
	case i.Type == "function_call":
		if i.Name == "" {
			return nil, Invalid(field+".name", "the call names no function")
		}
		turns, t := ofAssistant(turns, func(turn) bool { return false })
		t.ToolCalls = append(t.ToolCalls, functionCall{i.Name, i.Arguments}.call(i.CallID))
		return turns, nil
	case i.Type == "function_call_output":
		text, err := content(i.Output, field+".output", "input_text", "output_text", "text")
		if err != nil {
			return nil, err
		}
		return append(turns, turn{Message: dialog.Message{Role: dialog.ToolReply, Content: text, ToolCallID: i.CallID}}), nil
	}
	if i.Type == "" {
		return nil, Invalid(field+".type", "the item has neither a type nor a role: send messages with a role, or items of type \"function_call\" and \"function_call_output\"")
	}
	return nil, Invalid(field+".type", "items of type %q are not supported", i.Type)
}

func addMessage(turns []turn, i item, field string) ([]turn, error) {
	text, err := content(i.Content, field+".content", "input_text", "output_text", "text", "refusal")
	if err != nil {
		return nil, err
	}
	role := dialog.Role(i.Role)
	switch role {
	case dialog.Assistant:
		// A second text begins a second turn. So does a text after calls, since it
		// responds to their results.
		turns, t := ofAssistant(turns, func(t turn) bool { return t.hasContent || len(t.ToolCalls) > 0 })
		t.Content, t.hasContent = text, true
		return turns, nil
	case "developer":
		role = dialog.System
	case dialog.System, dialog.User:
	default:
		return nil, unknownRole(field, i.Role)
	}
	return append(turns, turn{Message: dialog.Message{Role: role, Content: text, Name: i.Name}}), nil
}

// ofAssistant returns the last turn if it is the assistant's and not over. Otherwise it
// adds a new one and returns that.
func ofAssistant(turns []turn, over func(turn) bool) ([]turn, *turn) {
	last := len(turns) - 1
	if last < 0 || turns[last].Role != dialog.Assistant || over(turns[last]) {
		turns = append(turns, turn{Message: dialog.Message{Role: dialog.Assistant}})
		last++
	}
	return turns, &turns[last]
}

// reasoning returns the text of a reasoning item: its reasoning, or the summary if the
// item has none.
func (i item) reasoning() string {
	if text, err := content(i.Content, "", "reasoning_text", "text"); err == nil && text != "" {
		return text
	}
	var all strings.Builder
	for _, part := range i.Summary {
		all.WriteString(part.Text)
	}
	return all.String()
}
