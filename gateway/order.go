package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/wire"
)

// order is a request, the codec that spells its reply, and what the reply is held
// to.
type order struct {
	request *wire.Request
	codec   dialog.Codec
	tools   []dialog.Tool // that a reply may call
	form    *model.Form   // nil if the reply is free
}

// newOrder refuses what the codec, which is called name, can't hold a reply to.
func newOrder(name string, codec dialog.Codec, request *wire.Request) (*order, error) {
	o := &order{request: request, codec: codec, tools: usable(request)}
	if err := checkAlternatives(request); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(request.Tokens, func(t int32) bool { return t < 0 || int(t) >= codec.VocabSize() }) {
		return nil, wire.Invalid("prompt", "prompt has a token outside of 0 to %d", codec.VocabSize()-1)
	}
	form := model.Form{Codec: name, Stop: request.Stop}
	if o.relayed() {
		form = o.relayedForm(form)
	}
	field := "stop"
	switch {
	case request.Choice.Required:
		form.Call, field = true, "tool_choice"
	case request.Format.Schema != nil:
		form.Schema, field = request.Format.Schema, formatField(request.API)
	}
	if !form.Masks() && len(form.Stop) == 0 && !form.NoCall && len(form.Tools) == 0 {
		return o, nil
	}
	if form.Masks() && len(form.Tools) == 0 {
		for _, t := range o.tools {
			form.Tools = append(form.Tools, model.FormTool{Name: t.Name, Parameters: t.Parameters})
		}
	}
	switch _, err := codec.Constrain(form); {
	case errors.Is(err, dialog.ErrForm):
		return nil, unsupportedForm(field, fmt.Sprintf("%s: %s", field, detail(err, dialog.ErrForm)), err)
	case err != nil:
		return nil, fault(fmt.Errorf("constrain reply: %w", err))
	}
	o.form = &form
	return o, nil
}

// checkAlternatives refuses to tell what else could have been sampled, which is not
// on record. Recorded requests may ask for it: earlier releases took no notice.
func checkAlternatives(r *wire.Request) error {
	field, most, instead := "top_logprobs", 0, "leave it out, and the log-probabilities are those of the sampled tokens"
	if r.API == wire.Completions { // 1 is the token itself
		field, most, instead = "logprobs", 1, "ask for 0 or 1, and they are those of the sampled tokens"
	}
	if r.TopLogprobs <= most {
		return nil
	}
	f := wire.Invalid(field, "%s is %d, but alternatives to sampled tokens are not kept: %s", field, r.TopLogprobs, instead)
	f.Code = "unsupported_parameter"
	return f
}

// recordedOrder is the order of a recorded call, whose reply was held to form.
// Calls of releases that knew no forms have none, whatever their request says.
func recordedOrder(codec dialog.Codec, request *wire.Request, form json.RawMessage) (*order, error) {
	o := &order{request: request, codec: codec, tools: usable(request)}
	if len(form) == 0 {
		return o, nil
	}
	o.form = &model.Form{}
	if err := json.Unmarshal(form, o.form); err != nil {
		return nil, fmt.Errorf("decode form: %w", err)
	}
	return o, nil
}

// usable lists the tools that a reply may call.
func usable(r *wire.Request) []dialog.Tool {
	switch {
	case r.Choice.None:
		return nil
	case r.Choice.Names == nil:
		return r.Tools
	}
	return slices.DeleteFunc(slices.Clone(r.Tools), func(t dialog.Tool) bool { return !slices.Contains(r.Choice.Names, t.Name) })
}

// formatField is what the API calls the form of a reply's text.
func formatField(api wire.API) string {
	switch api {
	case wire.Responses:
		return "text.format"
	case wire.Messages:
		return "output_format"
	}
	return "response_format"
}

// written is the form as a call keeps it.
func (o *order) written() (json.RawMessage, error) {
	if o.form == nil {
		return nil, nil
	}
	written, err := json.Marshal(o.form)
	if err != nil {
		return nil, fmt.Errorf("encode form: %w", err)
	}
	return written, nil
}

// stops are the texts that end a reply.
func (o *order) stops() []string {
	if o.form == nil {
		return nil
	}
	return o.form.Stop
}

// reading is what a completion says.
type reading struct {
	message dialog.Message
	stopped string // the stop text that ended it, which is not part of the message
	problem string // why what looks like a tool call is none
	cut     bool   // the tool calls are whole, but one after them was cut off
}

// read reads a completion; id is shared by the ids of its tool calls. Where the
// request wants one tool call at most, what comes after the first is dropped. It
// stays in the tokens: the policy said it, and goes on from there.
func (o *order) read(completion []int32, id string) reading {
	var r reading
	if o.bareText() {
		r.message = dialog.Message{Role: dialog.Assistant, Content: o.codec.Text(completion[:o.length(completion)])}
	} else {
		r.message, r.problem = o.codec.Parse(completion, o.tools, toolCallIDs(id))
		if r.problem != "" && o.form != nil && o.form.Call {
			r = o.withWholeCalls(r, completion, id)
		}
	}
	if o.request.Serial && len(r.message.ToolCalls) > 1 {
		r.message.ToolCalls = r.message.ToolCalls[:1]
	}
	if at, stop := firstOf(r.message.Content, o.stops()); at >= 0 {
		r.message.Content, r.message.ToolCalls, r.stopped = r.message.Content[:at], nil, stop
	}
	return r
}

// withWholeCalls is the reading of a reply that had to call, and was cut off in one of
// several calls: those before it are whole, and the agent needs not lose them.
func (o *order) withWholeCalls(r reading, completion []int32, id string) reading {
	cutter, ok := o.codec.(dialog.Cutter)
	if !ok {
		return r
	}
	whole := cutter.WholeCalls(completion)
	if whole == nil {
		return r
	}
	message, problem := o.codec.Parse(whole, o.tools, toolCallIDs(id))
	if problem != "" {
		return r
	}
	return reading{message: message, problem: fmt.Sprintf("tool call %d cut off before its end", len(message.ToolCalls)), cut: !o.request.Serial}
}

// length is the number of tokens before the one that ended the completion.
func (o *order) length(completion []int32) int {
	stop := o.codec.Stop()
	if n := slices.IndexFunc(completion, func(t int32) bool { return slices.Contains(stop, t) }); n >= 0 {
		return n
	}
	return len(completion)
}

// firstOf finds the stop text that comes first, at equal places the longest.
func firstOf(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		n := strings.Index(text, s)
		if n >= 0 && (at < 0 || n < at || n == at && len(s) > len(stop)) {
			at, stop = n, s
		}
	}
	return at, stop
}

// encode is the body of the reply of one call.
func (o *order) encode(c *call) ([]byte, error) {
	one := *o.request
	one.N = 1 // other choices are calls of their own
	body, err := one.Encode(o.reply(c))
	if err != nil {
		return nil, fault(fmt.Errorf("encode reply %s: %w", c.id, err))
	}
	return body, nil
}
