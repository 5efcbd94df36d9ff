package conversation

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// Resume puts the dialog of the reply that a request continues by name before the
// request's own. Its instructions do not carry over. The caller holds the lock.
func (a *Attempt) Resume(r *Request) error {
	if err := r.ResolveItems(a.replied); err != nil {
		return err
	}
	if r.Previous == "" || r.resumed {
		return nil
	}
	c := a.named(r.Previous)
	if c == nil {
		f := wire.Invalid("previous_response_id", "the attempt has no reply %q", r.Previous)
		f.Code = "previous_response_not_found"
		return f
	}
	n := instructions(r.Request)
	r.Dialog = slices.Concat(r.Dialog[:n], c.said, r.Dialog[n:])
	r.resumed, r.named = true, c
	return nil
}

// named returns the recorded call of Responses with that id; nil if there is none, or if
// it was deleted.
func (a *Attempt) named(id string) *Call {
	for _, c := range slices.Backward(a.calls) {
		if c.ID == id && c.api() == wire.Responses && !c.forgot {
			return c
		}
	}
	return nil
}

// replied returns the reply of Responses with that id, for requests that refer to its
// items. The caller holds the lock.
func (a *Attempt) replied(id string) (dialog.Message, bool) {
	c := a.named(id)
	if c == nil {
		return dialog.Message{}, false
	}
	return c.Message, true
}

// uninstructed returns the request's dialog without the instructions.
func (r *Request) uninstructed() []dialog.Message {
	return slices.Clone(r.Dialog[instructions(r.Request):])
}

// instructions counts the messages of the dialog that are the request's instructions and
// not its input.
func instructions(r *wire.Request) int {
	var body struct {
		Instructions string `json:"instructions"`
	}
	// The request was decoded before; instructions that are not text count as none.
	_ = json.Unmarshal(r.Body, &body)
	if body.Instructions == "" || len(r.Dialog) == 0 || r.Dialog[0].Role != dialog.System || r.Dialog[0].Content != body.Instructions {
		return 0
	}
	return 1
}

// Recalled answers a request about the recorded reply of Responses with that id; known is
// false if there is none.
func (a *Attempt) Recalled(ctx context.Context, id string, answer func(c *Call) []byte) (body []byte, known bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.Ready(ctx); err != nil {
		return nil, false, err
	}
	c := a.named(id)
	if c == nil {
		return nil, false, nil
	}
	return answer(c), true, nil
}

// Forget deletes the reply for requests that name it, until a gateway reads the attempt
// from the journal, from which nothing is deleted. It is for use by Recalled's answer.
func (c *Call) Forget() { c.forgot = true }

// Body returns the body of the reply.
func (c *Call) Body() []byte { return c.Response }

// InputItems lists the input of the call's request.
func (c *Call) InputItems() []byte { return c.asked.InputItems(c.Stem) }
