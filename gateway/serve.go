package gateway

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// servedTokens is the most tokens of a served reply if the client does not say.
const servedTokens = 1024

// serve answers requests outside attempts, with the version and the settings that the
// client names.
func (g *Gateway) serve(api wire.API) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		decoded, err := g.readRequest(w, r, api)
		if err != nil {
			return err
		}
		if err := decoded.CheckPrefill(); err != nil {
			return err
		}
		decode, err := servedSettings(decoded)
		if err != nil {
			return err
		}
		version, request, err := g.servedRequest(r, decoded)
		if err != nil {
			return err
		}
		if decode.Prompt, err = request.Prompt(); err != nil {
			return err
		}
		return g.answer(w, r, request, g.calls.Serve(request, version, decode))
	}
}

// serveCount returns the number of tokens in the prompt of a Messages request.
func (g *Gateway) serveCount(w http.ResponseWriter, r *http.Request) error {
	decoded, err := g.readRequest(w, r, wire.Messages)
	if err != nil {
		return err
	}
	_, request, err := g.servedRequest(r, decoded)
	if err != nil {
		return err
	}
	if request.Relayed() {
		return uncountable()
	}
	prompt, err := request.Prompt()
	if err != nil {
		return err
	}
	_ = write(w, http.StatusOK, wire.Count(len(prompt))) // an error means that the client has left
	return nil
}

func (g *Gateway) servedRequest(r *http.Request, decoded *wire.Request) (model.VersionID, *conversation.Request, error) {
	if decoded.Previous != "" {
		return model.VersionID{}, nil, wire.Invalid("previous_response_id",
			"previous_response_id can't be used here: replies are kept only within an attempt, send the whole dialog")
	}
	if len(decoded.References) > 0 {
		return model.VersionID{}, nil, wire.Invalid("input",
			"input can't refer to items here: replies are kept only within an attempt, send the items themselves")
	}
	version, name, err := g.resolve(r, decoded.Model)
	if err != nil {
		return version, nil, err
	}
	codec, err := g.config.Codecs(name)
	if err != nil {
		return version, nil, fault(err)
	}
	request, err := conversation.NewRequest(name, codec, decoded)
	return version, request, err
}

// servedSettings returns the client's sampling settings, with OpenAI's defaults.
func servedSettings(request *wire.Request) (model.DecodeRequest, error) {
	decode := model.DecodeRequest{MaxTokens: servedTokens, Temperature: 1, Seed: conversation.RandomNumber()}
	if err := request.CheckSampling(); err != nil {
		return decode, err
	}
	if request.MaxTokens > 0 {
		decode.MaxTokens = request.MaxTokens
	}
	if request.Temperature != nil {
		decode.Temperature = *request.Temperature
	}
	if request.TopP != nil {
		decode.TopP = *request.TopP
	}
	if request.Seed != nil {
		decode.Seed = uint64(*request.Seed)
	}
	return decode, nil
}

func (g *Gateway) resolve(r *http.Request, name string) (model.VersionID, string, error) {
	version, codec, err := g.config.Versions.Resolve(r.Context(), name)
	if errors.Is(err, trace.ErrNotFound) {
		return version, "", &wire.Failure{
			Status: http.StatusNotFound, Code: "model_not_found", Param: "model", Cause: err,
			Message: fmt.Sprintf("the model %q is not served here: name a version, as RUN@promoted or RUN@NUMBER; GET /v1/models lists those that are promoted", name),
		}
	}
	return version, codec, err
}
