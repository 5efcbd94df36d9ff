package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// resume puts before a request's dialog that of the reply which it continues by
// name, whose instructions do not carry over. The caller holds mu.
func (a *attempt) resume(q *question) error {
	r := q.order.request
	if err := r.Recall(a.replied); err != nil {
		return err
	}
	if r.Previous == "" || q.resumed {
		return nil
	}
	c := a.response(r.Previous)
	if c == nil {
		return &wire.Failure{
			Status: http.StatusBadRequest, Code: "previous_response_not_found", Param: "previous_response_id",
			Message: fmt.Sprintf("the attempt has no reply %q", r.Previous),
		}
	}
	n := instructions(r)
	r.Dialog = slices.Concat(r.Dialog[:n], c.said, r.Dialog[n:])
	q.resumed, q.named = true, c
	return nil
}

// response is the recorded call of Responses with that id, nil if there is none or
// if it is not to be named again. The caller holds mu.
func (a *attempt) response(id string) *call {
	for _, c := range slices.Backward(a.calls) {
		if c.id == id && c.api == wire.Responses && !c.forgot {
			return c
		}
	}
	return nil
}

// replied is what the reply of Responses with that id was, for requests that refer
// to its items. The caller holds mu.
func (a *attempt) replied(id string) (dialog.Message, bool) {
	c := a.response(id)
	if c == nil {
		return dialog.Message{}, false
	}
	return c.message, true
}

// uninstructed is the request's dialog without the instructions.
func (q *question) uninstructed() []dialog.Message {
	return slices.Clone(q.order.request.Dialog[instructions(q.order.request):])
}

// instructions is how many messages of the dialog are the request's instructions
// rather than its input.
func instructions(r *wire.Request) int {
	var body struct {
		Instructions string `json:"instructions"`
	}
	// The request was decoded before; instructions that are no text are none.
	_ = json.Unmarshal(r.Body, &body)
	if body.Instructions == "" || len(r.Dialog) == 0 || r.Dialog[0].Role != dialog.System || r.Dialog[0].Content != body.Instructions {
		return 0
	}
	return 1
}

// recalled answers what is asked of a recorded reply of Responses.
func (g *Gateway) recalled(answer func(c *call) ([]byte, error)) func(http.ResponseWriter, *http.Request, *attempt) error {
	return func(w http.ResponseWriter, r *http.Request, a *attempt) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := a.ready(r.Context(), g); err != nil {
			return err
		}
		id := r.PathValue("id")
		c := a.response(id)
		if c == nil {
			return &wire.Failure{Status: http.StatusNotFound, Code: "response_not_found", Param: "id", Message: fmt.Sprintf("the attempt has no reply %q", id)}
		}
		body, err := answer(c)
		if err != nil {
			return err
		}
		_ = write(w, http.StatusOK, body) // who left does not need it
		return nil
	}
}

func wholeReply(c *call) ([]byte, error) { return c.response, nil }

// forget lets nobody name the reply again, until a gateway reads the attempt from
// the record, of which nothing is deleted.
func forget(c *call) ([]byte, error) {
	c.forgot = true
	return wire.Deleted(c.id), nil
}

func inputItems(c *call) ([]byte, error) { return c.asked.InputItems(c.stem), nil }
