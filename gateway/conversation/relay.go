package conversation

import (
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
)

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
