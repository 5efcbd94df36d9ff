package conversation

import (
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
)

// Relays reports whether what samples accepts messages and returns text: it renders
// dialogs, holds replies to forms and counts tokens itself.
func Relays(codec dialog.Codec) bool {
	_, ok := codec.(dialog.Relay)
	return ok
}

// Relayed reports whether the server that samples reads the dialog itself, see Relays.
func (r *Request) Relayed() bool { return Relays(r.Codec) }

// relayedForm adds what such a server has to be told. The server decides what is a call,
// so a choice of tools matters there even if it is not forced.
func (r *Request) relayedForm(form model.Form) model.Form {
	form.Strict = r.Format.Strict
	form.NoCall = r.Choice.None && len(r.Tools) > 0
	if r.Choice.Names != nil && !r.Choice.Required {
		form.Tools = append(form.Tools, r.formTools()...)
	}
	return form
}

// sampledTokens is how many tokens of a model a completion is.
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

// relayedPrompt is how many tokens of prompt the server counted; 0 if it did not say.
func (r *Request) relayedPrompt(completion []int32) int {
	if relay, ok := r.Codec.(dialog.Relay); ok {
		counted, _ := relay.Counted(completion)
		return counted.Prompt
	}
	return 0
}
