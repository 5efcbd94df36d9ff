package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/wire"
)

// prompt answers with the text of a prompt under the attempt's terms. A finished attempt
// answers, too: its prompts do not change.
func prompt(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	text, err := c.Prompt(r.PathValue("name"))
	var unknown *prompts.NotFoundError
	switch {
	case errors.As(err, &unknown):
		message := fmt.Sprintf("the attempt has no prompt %q: it has %s", unknown.Name, strings.Join(unknown.Names, ", "))
		if len(unknown.Names) == 0 {
			message = "the attempt has no prompts: give them in the spec of the run, under prompts"
		}
		return &wire.Failure{Status: http.StatusNotFound, Code: "prompt_not_found", Param: "name", Message: message, Cause: err}
	case err != nil:
		return fault(err)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(text)) // an error means that the client has left
	return nil
}
