package conversation

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// Resume completes a request that names the reply that it continues: it puts the dialog
// of that reply before the request's own messages, without the old instructions. It also
// resolves references to items of replies. The caller holds the lock.
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
	r.Dialog = slices.Concat(r.Dialog[:n], c.dialog, r.Dialog[n:])
	r.resumed, r.named = true, c
	return nil
}

// named returns the recorded call of Responses with that id; nil if there is none, or if
// it was deleted.
func (a *Attempt) named(id string) *Call {
	for _, c := range slices.Backward(a.calls) {
		if c.ID == id && c.api() == wire.Responses && !c.hidden {
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

// Recalled returns what answer makes of the recorded Responses reply with that id. If
// there is no such reply, known is false.
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

// Forget hides the reply from later requests that name it. Nothing is deleted from the
// journal, so a gateway that reads the attempt from it finds the reply again. Only the
// answer function of Recalled may call Forget.
func (c *Call) Forget() { c.hidden = true }

// Body returns the body of the reply.
func (c *Call) Body() []byte { return c.Response }

// InputItems lists the input of the call's request.
func (c *Call) InputItems() []byte { return c.request.InputItems(c.Stem) }
