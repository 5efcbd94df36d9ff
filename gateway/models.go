package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/fulgurite/fulgurite/gateway/inflight"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/wire"
)

// shapeOf is the API whose shape the client reads where the route does not tell:
// clients of Messages say which version of it they speak.
func shapeOf(r *http.Request) wire.API {
	if r.Header.Get("Anthropic-Version") != "" || strings.HasPrefix(endpoint(r), "/v1/messages") {
		return wire.Messages
	}
	return wire.Chat
}

// attemptModels lists the one version that answers in an attempt.
func (g *Gateway) attemptModels(w http.ResponseWriter, r *http.Request, a *inflight.Attempt) error {
	terms := a.Begun().Terms
	version := model.VersionID{Run: a.Address().Run, Policy: terms.Policy, Number: terms.Version}
	_ = write(w, http.StatusOK, shapeOf(r).Models([]string{version.String()})) // who left does not need it
	return nil
}

// attemptModel finds any model: whatever name an agent uses, the attempt's
// version answers.
func (g *Gateway) attemptModel(w http.ResponseWriter, r *http.Request, _ *inflight.Attempt) error {
	_ = write(w, http.StatusOK, shapeOf(r).Model(r.PathValue("id"))) // who left does not need it
	return nil
}

func (g *Gateway) models(w http.ResponseWriter, r *http.Request) error {
	names, err := g.config.Versions.List(r.Context())
	if err != nil {
		return fmt.Errorf("list versions: %w", err)
	}
	_ = write(w, http.StatusOK, shapeOf(r).Models(names)) // who left does not need it
	return nil
}

func (g *Gateway) model(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("id")
	if _, _, err := g.resolve(r, name); err != nil {
		return err
	}
	_ = write(w, http.StatusOK, shapeOf(r).Model(name)) // who left does not need it
	return nil
}

// writeJSON answers with v. That the client left is no error to explain.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fault(fmt.Errorf("encode reply: %w", err))
	}
	_ = write(w, http.StatusOK, body)
	return nil
}
