package gateway

import (
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/gateway/inflight"
	"github.com/fulgurite/fulgurite/wire"
)

// recalled answers requests about a recorded reply of Responses.
func recalled(answer func(c *conversation.Call) []byte) func(http.ResponseWriter, *http.Request, *inflight.Attempt) error {
	return func(w http.ResponseWriter, r *http.Request, a *inflight.Attempt) error {
		id := r.PathValue("id")
		body, known, err := a.Recalled(r.Context(), id, answer)
		switch {
		case err != nil:
			return err
		case !known:
			return &wire.Failure{Status: http.StatusNotFound, Code: "response_not_found", Param: "id", Message: fmt.Sprintf("the attempt has no reply %q", id)}
		}
		_ = write(w, http.StatusOK, body) // an error means that the client has left
		return nil
	}
}

func forget(c *conversation.Call) []byte {
	c.Forget()
	return wire.Deleted(c.ID)
}
