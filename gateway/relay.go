package gateway

import (
	"net/http"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/wire"
)

// relays reports whether what samples takes messages and gives text: it renders
// dialogs, holds replies to forms and counts tokens itself.
func relays(codec dialog.Codec) bool {
	_, ok := codec.(dialog.Relay)
	return ok
}

func (o *order) relayed() bool { return relays(o.codec) }

// bareText reports whether all tokens of a reply are text of its own.
func (o *order) bareText() bool { return o.request.API == wire.Completions && !o.relayed() }

// relayedForm adds what such a server has to be told. A choice of tools need not be
// forced to matter there: the server decides what is a call.
func (o *order) relayedForm(form model.Form) model.Form {
	r := o.request
	form.Strict = r.Format.Strict
	form.NoCall = r.Choice.None && len(r.Tools) > 0
	if r.Choice.Names != nil && !r.Choice.Required {
		for _, t := range o.tools {
			form.Tools = append(form.Tools, model.FormTool{Name: t.Name, Parameters: t.Parameters})
		}
	}
	return form
}

// spent is how many tokens of a model a completion is.
func spent(codec dialog.Codec, completion []int32) int {
	relay, ok := codec.(dialog.Relay)
	if !ok {
		return len(completion)
	}
	if counted, ok := relay.Counted(completion); ok {
		return counted.Completion
	}
	return len(relay.Pieces(completion, make([]float32, len(completion))))
}

func (o *order) spent(completion []int32) int { return spent(o.codec, completion) }

// heard is how many tokens of prompt the server counted; 0 if it did not say.
func (o *order) heard(completion []int32) int {
	if relay, ok := o.codec.(dialog.Relay); ok {
		counted, _ := relay.Counted(completion)
		return counted.Prompt
	}
	return 0
}

// uncountable refuses to count the tokens of a prompt.
func uncountable() *wire.Failure {
	return &wire.Failure{
		Status: http.StatusBadRequest, Code: "unknown_token_count",
		Message: "the tokens of a prompt can't be counted here: the server that samples counts them when it replies",
	}
}
