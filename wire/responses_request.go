package wire

import (
	"encoding/json"
	"slices"

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
