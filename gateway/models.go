package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/model"
)

// modelEntry is the JSON of a model.
type modelEntry struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// attemptModels lists the one version that answers in an attempt.
func (g *Gateway) attemptModels(w http.ResponseWriter, _ *http.Request, a *attempt) error {
	version := model.VersionID{Run: a.address.Run, Policy: a.begun.Terms.Policy, Number: a.begun.Terms.Version}
	return listModels(w, []string{version.String()})
}

// attemptModel finds any model: whatever name an agent uses, the attempt's
// version answers.
func (g *Gateway) attemptModel(w http.ResponseWriter, r *http.Request, _ *attempt) error {
	return writeJSON(w, entry(r.PathValue("id")))
}

func (g *Gateway) models(w http.ResponseWriter, r *http.Request) error {
	names, err := g.config.Versions.List(r.Context())
	if err != nil {
		return fmt.Errorf("list versions: %w", err)
	}
	return listModels(w, names)
}

func (g *Gateway) model(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("id")
	if _, _, err := g.resolve(r, name); err != nil {
		return err
	}
	return writeJSON(w, entry(name))
}

func listModels(w http.ResponseWriter, names []string) error {
	entries := make([]modelEntry, len(names))
	for i, name := range names {
		entries[i] = entry(name)
	}
	return writeJSON(w, struct {
		Object string       `json:"object"`
		Data   []modelEntry `json:"data"`
	}{"list", entries})
}

func entry(name string) modelEntry {
	return modelEntry{ID: name, Object: "model", OwnedBy: "fulgurite"}
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
