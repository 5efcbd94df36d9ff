package gateway

import (
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/wire"
)

// recall answers requests about a recorded reply of Responses.
func recall(answer func(c *conversation.Call) []byte) attemptHandler {
	return func(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
		id := r.PathValue("id")
		body, ok, err := c.Recall(r.Context(), id, answer)
		switch {
		case err != nil:
			return err
		case !ok:
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
