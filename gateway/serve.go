package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// servedTokens is the most tokens of a served reply unless the client says.
const servedTokens = 1024

// serve answers outside attempts, by an API, with the version and settings that
// the client names.
func (g *Gateway) serve(api wire.API) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, request, err := g.readRequest(w, r, api)
		if err != nil {
			return err
		}
		decode, err := servedSettings(request)
		if err != nil {
			return err
		}
		version, o, err := g.servedOrder(r, request)
		if err != nil {
			return err
		}
		if decode.Prompt, err = o.prompt(); err != nil {
			return err
		}
		decode.Stop, decode.Form = o.codec.Stop(), o.form
		return g.answer(w, r, o, &outside{Gateway: g, order: o, version: version, decode: decode})
	}
}

// serveCount tells how many tokens the prompt of a Messages request would have.
func (g *Gateway) serveCount(w http.ResponseWriter, r *http.Request) error {
	_, request, err := g.readRequest(w, r, wire.Messages)
	if err != nil {
		return err
	}
	_, o, err := g.servedOrder(r, request)
	if err != nil {
		return err
	}
	if o.relayed() {
		return uncountable()
	}
	prompt, err := o.prompt()
	if err != nil {
		return err
	}
	_ = write(w, http.StatusOK, wire.Count(len(prompt))) // who left does not need it
	return nil
}

func (g *Gateway) servedOrder(r *http.Request, request *wire.Request) (model.VersionID, *order, error) {
	if request.Previous != "" {
		return model.VersionID{}, nil, wire.Invalid("previous_response_id",
			"previous_response_id can't be used here: replies are kept only within an attempt, send the whole dialog")
	}
	if len(request.Refers) > 0 {
		return model.VersionID{}, nil, wire.Invalid("input",
			"input can't refer to items here: replies are kept only within an attempt, send the items themselves")
	}
	version, name, err := g.resolve(r, request.Model)
	if err != nil {
		return version, nil, err
	}
	codec, err := g.config.Codecs(name)
	if err != nil {
		return version, nil, fault(err)
	}
	o, err := newOrder(name, codec, request)
	return version, o, err
}

// prompt is the whole request in tokens.
func (o *order) prompt() ([]int32, error) {
	if o.request.API == wire.Completions {
		return o.bare()
	}
	return o.codec.Prompt(o.request.Dialog, o.request.Tools)
}

// servedSettings are those of the client, or OpenAI's defaults.
func servedSettings(request *wire.Request) (model.DecodeRequest, error) {
	decode := model.DecodeRequest{MaxTokens: servedTokens, Temperature: 1, Seed: randomNumber()}
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

// outside hosts a request outside of attempts, of which nothing is recorded.
type outside struct {
	*Gateway
	order   *order
	version model.VersionID
	decode  model.DecodeRequest
	cancel  context.CancelFunc
}

func (h *outside) board(ctx context.Context) ([]seat, error) {
	ctx, h.cancel = context.WithCancel(ctx)
	seats := make([]seat, h.order.request.N)
	for i := range seats {
		decode := h.decode
		decode.Seed += uint64(i)
		f := &flight{stem: idOf(randomNumber()), created: h.config.Now(), prompt: decode.Prompt, done: make(chan struct{})}
		decode.Emit = f.feed.tap(h.order)
		seats[i] = seat{flight: f, counted: true, wait: aside(func() {
			defer close(f.done)
			f.err = fault(fmt.Errorf("sampling %s was interrupted", h.version)) // stands if it panics
			f.call, f.err = h.sample(ctx, f, decode)
		})}
	}
	return seats, nil
}

func (h *outside) sample(ctx context.Context, f *flight, decode model.DecodeRequest) (*call, error) {
	sampled, _, err := h.config.Sampler.Sample(ctx, h.version, decode)
	if err == nil {
		err = f.feed.check(sampled)
	}
	if err != nil {
		return nil, samplingFailure(err, h.version)
	}
	api := h.order.request.API
	c := &call{
		id: api.ReplyID(f.stem), stem: f.stem, api: api, prompt: f.prompt, completion: sampled.Tokens, logprobs: sampled.Logprobs,
		finish: sampled.Finish, created: f.created, reading: h.order.read(sampled.Tokens, f.stem),
	}
	c.response, err = h.order.encode(c)
	return c, err
}

func (h *outside) vacate(seats []seat, _ bool) {
	h.cancel()
	for _, s := range seats {
		s.wait()
	}
}
