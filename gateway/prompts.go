package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/wire"
)

// prompt answers with the text of a prompt under the attempt's terms. A finished attempt
// answers, too: its prompts do not change.
func prompt(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	text, err := c.Prompt(r.PathValue("name"))
	if err != nil {
		return noPrompt("attempt", err)
	}
	writeText(w, text)
	return nil
}

// servedPrompt answers with the text of a promoted prompt of the run that the parameter
// model names.
func (g *Gateway) servedPrompt(w http.ResponseWriter, r *http.Request) error {
	name := r.FormValue("model")
	if name == "" {
		return wire.Invalid("model", "model is missing: say of which run, as %s?model=RUN", endpoint(r))
	}
	served, err := g.resolve(r, name)
	if err != nil {
		return err
	}
	set, err := g.promoted(w, served)
	if err != nil {
		return err
	}
	text, err := set.Prompts().Text(r.PathValue("name"))
	if err != nil {
		return noPrompt("run", err)
	}
	writeText(w, text)
	return nil
}

// noPrompt explains why an attempt or a run has no text of a name.
func noPrompt(of string, err error) error {
	var unknown *prompts.NotFoundError
	if !errors.As(err, &unknown) {
		return fault(err)
	}
	message := fmt.Sprintf("the %s has no prompt %q: it has %s", of, unknown.Name, strings.Join(unknown.Names, ", "))
	if len(unknown.Names) == 0 {
		message = fmt.Sprintf("the %s has no prompts: give them in the spec of the run, under prompts", of)
	}
	return &wire.Failure{Status: http.StatusNotFound, Code: "prompt_not_found", Param: "name", Message: message, Cause: err}
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write([]byte(text)) // an error means that the client has left
}

// readServed returns the tokens of a request for a version: with the promoted prompts of
// its run in place of what they replace, unless the client wants none. The headers of the
// reply say what answers.
func (g *Gateway) readServed(w http.ResponseWriter, r *http.Request, served model.Served, request *conversation.Request) ([]int32, error) {
	none, err := wantsNoPrompts(r)
	if err != nil {
		return nil, err
	}
	if none {
		served.Prompts = ""
	}
	set, err := g.promoted(w, served)
	if err != nil {
		return nil, err
	}
	ids, replaced, err := request.Prompt(set)
	if err == nil && served.Prompts != "" {
		w.Header().Set(protocol.ReplacedHeader, strconv.Itoa(replaced))
	}
	return ids, err
}

// wantsNoPrompts reports whether the client wants its request to stay as it is.
func wantsNoPrompts(r *http.Request) (bool, error) {
	const name = protocol.PromptsHeader
	switch value := r.Header.Get(name); value {
	case "":
		return false, nil
	case protocol.NoPrompts:
		return true, nil
	default:
		return false, wire.Invalid(name, "the header %s is %q: send %q to leave the request as it is, or leave the header out", name, value, protocol.NoPrompts)
	}
}

// promoted returns the promoted prompts of a run, and notes their number and the version
// in the headers of the reply.
func (g *Gateway) promoted(w http.ResponseWriter, served model.Served) (prompts.Set, error) {
	set, err := g.calls.Prompts(served.Prompts)
	if err != nil {
		return set, fault(err)
	}
	number := protocol.NoPrompts
	if served.Prompts != "" {
		number = strconv.Itoa(served.PromptsNumber)
	}
	w.Header().Set(protocol.VersionHeader, served.VersionID.String())
	w.Header().Set(protocol.PromptsHeader, number)
	return set, nil
}
