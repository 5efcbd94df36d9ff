package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/wire"
)

// shapeOf returns the API whose shape the answer gets if the route belongs to no API.
// Clients of Messages send a header with the API's version.
func shapeOf(r *http.Request) wire.API {
	if r.Header.Get("Anthropic-Version") != "" || strings.HasPrefix(endpoint(r), "/v1/messages") {
		return wire.Messages
	}
	return wire.Chat
}

// attemptModels lists the one version that answers in an attempt.
func (g *Gateway) attemptModels(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	terms := c.Begun().Terms
	version := model.VersionID{Run: c.Address().Run, Policy: terms.Policy, Number: terms.Version}
	_ = write(w, http.StatusOK, shapeOf(r).Models([]string{version.String()})) // an error means that the client has left
	return nil
}

// attemptModel accepts any name: the attempt's version answers, whatever model an agent
// names.
func (g *Gateway) attemptModel(w http.ResponseWriter, r *http.Request, _ *conversation.Conversation) error {
	_ = write(w, http.StatusOK, shapeOf(r).Model(r.PathValue("id"))) // an error means that the client has left
	return nil
}

func (g *Gateway) models(w http.ResponseWriter, r *http.Request) error {
	names, err := g.config.Versions.List(r.Context())
	if err != nil {
		return fmt.Errorf("list versions: %w", err)
	}
	_ = write(w, http.StatusOK, shapeOf(r).Models(names)) // an error means that the client has left
	return nil
}

func (g *Gateway) model(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("id")
	if _, _, err := g.resolve(r, name); err != nil {
		return err
	}
	_ = write(w, http.StatusOK, shapeOf(r).Model(name)) // an error means that the client has left
	return nil
}

// writeJSON answers with v. It ignores errors, which mean that the client has left.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fault(fmt.Errorf("encode reply: %w", err))
	}
	_ = write(w, http.StatusOK, body)
	return nil
}
