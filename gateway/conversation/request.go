package conversation

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/wire"
)

// Request is a decoded request of an agent or a client, with the codec and the form of
// its reply. It also holds which agent asks, and whether it asks again.
type Request struct {
	*wire.Request
	Codec dialog.Codec
	Form  *model.Form // that the reply is held to; nil if it is free

	Agent   string
	Name    string // the forwarder's name for this request of the agent; empty if there is none
	Reasked bool   // the forwarder repeats this request
	Again   bool   // the client repeats an earlier request

	// Served says how the request is recorded if it belongs to a conversation with a served
	// version; nil in other attempts.
	Served *Served

	policy   string        // that answers it, once choosePolicy has decided; not for served requests
	callable []dialog.Tool // the tools that the reply may call
	resumed  bool          // resume has added the dialog of the reply that Previous names
	previous *Call         // the call of that reply
}

// NewRequest returns a request with the form of its reply. It refuses a form that the
// codec, which is called name, can't hold a reply to.
func NewRequest(name string, codec dialog.Codec, request *wire.Request) (*Request, error) {
	r := NewFreeRequest(codec, request)
	if err := checkAlternatives(request); err != nil {
		return nil, err
	}
	if err := checkVariables(codec, request); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(request.Tokens, func(t int32) bool { return t < 0 || int(t) >= codec.VocabSize() }) {
		return nil, wire.Invalid("prompt", "prompt has a token outside of 0 to %d", codec.VocabSize()-1)
	}
	form := model.Form{Codec: name, Stop: request.Stop, Bare: request.API == wire.Completions && len(request.Stop) > 0}
	if r.Relayed() {
		form = r.relayedForm(form)
	}
	field := "stop"
	switch {
	case request.Choice.Required:
		form.Call, field = true, "tool_choice"
	case request.Format.Schema != nil:
		form.Schema, field = request.Format.Schema, formatField(request.API)
	}
	if !form.Masks() && len(form.Stop) == 0 && !form.NoCall && len(form.Tools) == 0 {
		return r, nil
	}
	if len(form.Tools) == 0 && (form.Masks() || len(form.Stop) > 0 && !r.Relayed()) {
		form.Tools = r.formTools() // a stop text ends the content, not a call of one of them
	}
	switch _, err := codec.Constrain(form); {
	case errors.Is(err, dialog.ErrForm):
		return nil, &FormError{field, err}
	case err != nil:
		return nil, &Fault{fmt.Errorf("constrain reply: %w", err)}
	}
	r.Form = &form
	return r, nil
}

// NewFreeRequest returns a request whose reply is not held to any form.
func NewFreeRequest(codec dialog.Codec, request *wire.Request) *Request {
	return &Request{Request: request, Codec: codec, callable: callableTools(request)}
}

// recordedRequest returns the request of a recorded call, whose reply was held to form.
// Calls of releases without forms have none, whatever their request says.
func recordedRequest(codec dialog.Codec, request *wire.Request, form json.RawMessage) (*Request, error) {
	r := NewFreeRequest(codec, request)
	if len(form) == 0 {
		return r, nil
	}
	r.Form = &model.Form{}
	if err := json.Unmarshal(form, r.Form); err != nil {
		return nil, fmt.Errorf("decode form: %w", err)
	}
	return r, nil
}

// checkVariables refuses variables of the chat template that differ from the run's: the
// model would be trained with other prompts than the client expects. A variable that the
// template does not read has no effect anywhere.
func checkVariables(codec dialog.Codec, r *wire.Request) error {
	own, ok := codec.(dialog.Variables)
	for _, name := range slices.Sorted(maps.Keys(r.Variables)) {
		var value json.RawMessage
		_, used := codec.(dialog.Relay) // the server of messages would read it
		if ok {
			value, used = own.Variable(name)
		}
		if !used || sameJSON(string(value), string(r.Variables[name])) {
			continue
		}
		field := "chat_template_kwargs." + name
		f := wire.Invalid(field, "%s is %s, but the model's prompts are rendered with %s: leave it out, or set model.template_variables of the run to {%s: %s}",
			field, r.Variables[name], cmp.Or(string(value), "no such variable"), name, r.Variables[name])
		f.Code = "unsupported_parameter"
		return f
	}
	return nil
}

// checkAlternatives refuses requests for the alternatives of a sampled token, which are
// not on record. Recorded requests may ask for them: earlier releases ignored that.
func checkAlternatives(r *wire.Request) error {
	field, limit, instead := "top_logprobs", 0, "leave it out, and the log-probabilities are those of the sampled tokens"
	if r.API == wire.Completions { // 1 is the token itself
		field, limit, instead = "logprobs", 1, "ask for 0 or 1, and they are those of the sampled tokens"
	}
	if r.TopLogprobs <= limit {
		return nil
	}
	f := wire.Invalid(field, "%s is %d, but alternatives to sampled tokens are not kept: %s", field, r.TopLogprobs, instead)
	f.Code = "unsupported_parameter"
	return f
}

// callableTools lists the tools that a reply may call.
func callableTools(r *wire.Request) []dialog.Tool {
	switch {
	case r.Choice.None:
		return nil
	case r.Choice.Names == nil:
		return r.Tools
	}
	return slices.DeleteFunc(slices.Clone(r.Tools), func(t dialog.Tool) bool { return !slices.Contains(r.Choice.Names, t.Name) })
}

func (r *Request) formTools() []model.FormTool {
	var tools []model.FormTool
	for _, t := range r.callable {
		tools = append(tools, model.FormTool{Name: t.Name, Parameters: t.Parameters})
	}
	return tools
}

// formatField returns the name of the API's field that asks for a form of the text.
func formatField(api wire.API) string {
	switch api {
	case wire.Responses:
		return "text.format"
	case wire.Messages:
		return "output_format"
	}
	return "response_format"
}

// encodedForm returns the form as a call records it.
func (r *Request) encodedForm() (json.RawMessage, error) {
	if r.Form == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(r.Form)
	if err != nil {
		return nil, fmt.Errorf("encode form: %w", err)
	}
	return encoded, nil
}

// stops returns the texts that end a reply.
func (r *Request) stops() []string {
	if r.Form == nil {
		return nil
	}
	return r.Form.Stop
}

// nameOf returns the name of the request for one of several choices.
func (r *Request) nameOf(choice int) string {
	if choice == 0 || r.Name == "" {
		return r.Name
	}
	return fmt.Sprintf("%s/%d", r.Name, choice)
}

// Prompt returns the tokens of the whole request, for sampling outside attempts, and how
// many of its texts the prompts of the set replaced.
func (r *Request) Prompt(set prompts.Set) (ids []int32, replaced int, err error) {
	if r.API == wire.Completions {
		ids, err = r.textPrompt()
		return ids, 0, err
	}
	read, err := r.reading(set, r.Dialog)
	if err != nil {
		return nil, 0, err
	}
	ids, err = r.Codec.Prompt(read.turns, read.tools)
	return ids, read.replaced, err
}

// textPrompt returns the prompt of a Completions request, which is no dialog.
func (r *Request) textPrompt() ([]int32, error) {
	ids := slices.Clone(r.Tokens)
	if ids == nil {
		var err error
		if ids, err = r.encodeText(); err != nil {
			return nil, err
		}
	}
	if len(ids) == 0 {
		return nil, wire.Invalid("prompt", "prompt is empty")
	}
	return ids, nil
}

// encodeText returns the tokens of a prompt that is a text. A program that renders dialogs
// itself names special tokens in it.
func (r *Request) encodeText() ([]int32, error) {
	encoder, ok := r.Codec.(dialog.PromptEncoder)
	if !ok {
		return r.Codec.Encode(r.Text), nil
	}
	ids, err := encoder.EncodePrompt(r.Text)
	if errors.Is(err, dialog.ErrPrompt) {
		f := wire.Invalid("prompt", "prompt: %s: send token ids", err)
		f.Cause = err
		return nil, f
	}
	return ids, err //nolint:wrapcheck // there is no other error
}

// Relays reports whether the sampling server accepts messages and returns text. Such a
// server renders dialogs, holds replies to forms and counts tokens itself.
func Relays(codec dialog.Codec) bool {
	_, ok := codec.(dialog.Relay)
	return ok
}

// Relayed reports whether the sampling server reads the dialog itself, see Relays.
func (r *Request) Relayed() bool { return Relays(r.Codec) }

// relayedForm adds the fields that a server which reads dialogs needs, see Relays. The
// server decides whether text is a tool call, so the choice of tools matters even if no
// call is forced.
func (r *Request) relayedForm(form model.Form) model.Form {
	form.Strict = r.Format.Strict
	form.NoCall = r.Choice.None && len(r.Tools) > 0
	if r.Choice.Names != nil && !r.Choice.Required {
		form.Tools = append(form.Tools, r.formTools()...)
	}
	return form
}

// sampledTokens returns how many of the model's tokens were sampled for a completion.
func sampledTokens(codec dialog.Codec, completion []int32) int {
	relay, ok := codec.(dialog.Relay)
	if !ok {
		return len(completion)
	}
	if counted, ok := relay.Counted(completion); ok {
		return counted.Completion
	}
	return len(relay.Pieces(completion, make([]float32, len(completion))))
}

// relayedPrompt returns how many prompt tokens the server counted; 0 if it did not say.
func (r *Request) relayedPrompt(completion []int32) int {
	if relay, ok := r.Codec.(dialog.Relay); ok {
		counted, _ := relay.Counted(completion)
		return counted.Prompt
	}
	return 0
}
