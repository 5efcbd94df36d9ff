package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
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
		served, request, err := g.servedRequest(r, decoded)
		if err != nil {
			return err
		}
		recorded, err := g.records(r, served)
		if err != nil {
			return err
		}
		if recorded {
			return g.serveRecorded(w, r, served, request, decode)
		}
		return g.serveUnrecorded(w, r, served, request, decode)
	}
}

// serveUnrecorded answers a request with a call that leaves no record.
func (g *Gateway) serveUnrecorded(w http.ResponseWriter, r *http.Request, served model.Served, request *conversation.Request, decode model.DecodeRequest) (err error) {
	if decode.Prompt, err = g.readServed(w, r, served, request); err != nil {
		return err
	}
	return g.answer(w, r, request, g.calls.Serve(request, served.VersionID, decode))
}

// serveCount returns the number of tokens in the prompt of a Messages request.
func (g *Gateway) serveCount(w http.ResponseWriter, r *http.Request) error {
	decoded, err := g.readRequest(w, r, wire.Messages)
	if err != nil {
		return err
	}
	served, request, err := g.servedRequest(r, decoded)
	if err != nil {
		return err
	}
	if request.Relayed() {
		return uncountable()
	}
	prompt, err := g.readServed(w, r, served, request)
	if err != nil {
		return err
	}
	_ = write(w, http.StatusOK, wire.Count(len(prompt))) // an error means that the client has left
	return nil
}

func (g *Gateway) servedRequest(r *http.Request, decoded *wire.Request) (model.Served, *conversation.Request, error) {
	refusal := refusesReferences(decoded)
	if refusal != nil && g.config.Conversations == nil {
		return model.Served{}, nil, refusal
	}
	served, err := g.resolve(r, decoded.Model)
	if refusal != nil {
		if recorded, failed := g.records(r, served); err != nil || failed != nil || !recorded {
			return model.Served{}, nil, refusal
		}
	}
	if err != nil {
		return served, nil, err
	}
	codec, err := g.config.Codecs(served.Codec)
	if err != nil {
		return served, nil, fault(err)
	}
	request, err := conversation.NewRequest(served.Codec, codec, decoded)
	if err != nil {
		return served, nil, err
	}
	request.Agent = r.PathValue("agent")
	return served, request, nil
}

// refusesReferences refuses a request that refers to earlier replies. They are kept only in
// attempts and in recorded conversations.
func refusesReferences(decoded *wire.Request) error {
	switch {
	case decoded.Previous != "":
		return wire.Invalid("previous_response_id",
			"previous_response_id can't be used here: replies are kept only within an attempt, send the whole dialog")
	case len(decoded.References) > 0:
		return wire.Invalid("input",
			"input can't refer to items here: replies are kept only within an attempt, send the items themselves")
	}
	return nil
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

func (g *Gateway) resolve(r *http.Request, name string) (model.Served, error) {
	served, err := g.config.Versions.Resolve(r.Context(), name)
	switch {
	case errors.Is(err, model.ErrJoint):
		return served, &wire.Failure{Status: http.StatusNotFound, Code: "model_not_found", Param: "model", Cause: err, Message: err.Error()}
	case errors.Is(err, record.ErrNotFound):
		return served, &wire.Failure{
			Status: http.StatusNotFound, Code: "model_not_found", Param: "model", Cause: err,
			Message: fmt.Sprintf("the model %q is not served here: name a version, as RUN@promoted or RUN@NUMBER, or of one of several policies, as RUN:POLICY@promoted; GET /v1/models lists those that are promoted", name),
		}
	}
	return served, err
}

// maxName is the most bytes of a request's name; longer names are ignored.
const maxName = 64

// readRequest reads and decodes a request of an API.
func (g *Gateway) readRequest(w http.ResponseWriter, r *http.Request, api wire.API) (*wire.Request, error) {
	body, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	return wire.Decode(api, body)
}

// identify notes which agent asks and whether it asks again, from the headers and the
// path.
func identify(r *http.Request, request *conversation.Request) {
	count := func(name string) int {
		n, _ := strconv.Atoi(r.Header.Get(name)) // absent or malformed: 0
		return n
	}
	request.Agent = r.PathValue("agent")
	if name := r.Header.Get(protocol.RequestNameHeader); len(name) <= maxName {
		request.Name = name
	}
	reasked := count(protocol.RetryHeader)
	request.Reasked = reasked > 0
	request.Again = count(protocol.SDKRetryHeader) > reasked || request.Reasked && request.Name == ""
}

const (
	// maxBody is the most bytes of a request if the configuration does not say.
	maxBody = 32 << 20
	// bodyTimeout is how long a client may pause while it sends a request.
	bodyTimeout = time.Minute
)

// readBody reads a request, compressed with gzip or not.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return g.readBodyWithin(w, r, g.config.BodyBytes)
}

// readBodyWithin reads a request of at most so many bytes, packed and unpacked.
func (g *Gateway) readBodyWithin(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close") // rather than read the rest
		return nil, tooLarge(limit)
	}
	connection := http.NewResponseController(w)
	in := io.Reader(&deadlineReader{http.MaxBytesReader(w, r.Body, limit), connection})
	// After the body, a read only notices that the client has left, and has no deadline.
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	switch encoding := r.Header.Get("Content-Encoding"); strings.ToLower(encoding) {
	case "", "identity":
	case "gzip":
		packed, err := gzip.NewReader(in)
		if err != nil {
			return nil, unreadable(err, limit)
		}
		in = packed
	default:
		return nil, &wire.Failure{
			Status: http.StatusUnsupportedMediaType, Code: "unsupported_encoding",
			Message: fmt.Sprintf("the request's body is encoded with %q: send it plain or with gzip", encoding),
		}
	}
	var buffer bytes.Buffer
	if r.ContentLength > 0 {
		buffer.Grow(int(min(r.ContentLength, 1<<20)) + bytes.MinRead)
	}
	_, err := buffer.ReadFrom(io.LimitReader(in, limit+1))
	body := buffer.Bytes()
	if err != nil {
		w.Header().Set("Connection", "close") // the rest of it is not read
		return nil, unreadable(err, limit)
	}
	if int64(len(body)) > limit {
		return nil, tooLarge(limit)
	}
	return body, nil
}

// deadlineReader reads a body. A read fails if no byte arrives within bodyTimeout.
type deadlineReader struct {
	io.Reader
	connection *http.ResponseController
}

func (p *deadlineReader) Read(b []byte) (int, error) {
	// Not every connection has deadlines; without one, reads wait.
	_ = p.connection.SetReadDeadline(time.Now().Add(bodyTimeout))
	return p.Reader.Read(b)
}

func unreadable(err error, limit int64) error {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &wire.Failure{Status: http.StatusRequestTimeout, Code: protocol.CodeTimeout, Message: "the rest of the request did not come", Cause: err}
	}
	return &wire.Failure{Status: http.StatusBadRequest, Code: "invalid_body", Message: "the request's body could not be read", Cause: err}
}

func tooLarge(limit int64) error {
	return &wire.Failure{
		Status: http.StatusRequestEntityTooLarge, Code: protocol.CodeTooLarge,
		Message: fmt.Sprintf("the request has more than %d bytes", limit),
	}
}

// ask returns the handler of an API's model calls in attempts.
func (g *Gateway) ask(api wire.API) attemptHandler {
	return func(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
		decoded, err := g.readRequest(w, r, api)
		if err != nil {
			return err
		}
		if err := decoded.CheckPrefill(); err != nil {
			return err
		}
		terms := c.Begun().Terms
		if decoded.Model == "" {
			decoded.Model = terms.Policy
		}
		request, err := conversation.NewRequest(terms.Codec, c.Codec(), decoded)
		if err != nil {
			return err
		}
		identify(r, request)
		return g.answer(w, r, request, c.Calls(request))
	}
}

// answer gives a request its reply, streamed or whole.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, request *conversation.Request, calls conversation.Calls) error {
	if request.Stream {
		return g.stream(w, r, request, calls)
	}
	for {
		err := answerOnce(w, r, request, calls)
		if !errors.Is(err, conversation.ErrAgain) {
			return err
		}
		if err := r.Context().Err(); err != nil {
			return fmt.Errorf("wait for call: %w", err)
		}
	}
}

func answerOnce(w http.ResponseWriter, r *http.Request, request *conversation.Request, h conversation.Calls) error {
	slots, err := h.Admit(r.Context())
	if err != nil {
		return err
	}
	delivery := conversation.Nothing
	defer func() { h.Release(slots, delivery) }()
	calls, err := waitAll(r.Context(), slots)
	if err != nil {
		return err
	}
	body := calls[0].Body()
	if len(calls) > 1 {
		if body, err = request.Encode(request.Reply(calls...)); err != nil {
			return fault(fmt.Errorf("encode reply %s: %w", calls[0].ID, err))
		}
	}
	w.Header().Set("X-Request-Id", calls[0].ID)
	// A write can succeed although the client has left, and a client may leave as soon as
	// it has its reply. So a reply counts as delivered only if the client was still there
	// before the write.
	connected := r.Context().Err() == nil
	if err := write(w, http.StatusOK, body); connected && err == nil {
		delivery = conversation.Whole
	}
	return nil
}

func waitAll(ctx context.Context, slots []conversation.Slot) ([]*conversation.Call, error) {
	calls := make([]*conversation.Call, len(slots))
	for i := range slots {
		var err error
		if calls[i], err = slots[i].Wait(ctx); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// countTokens returns the number of tokens in the prompt of a Messages request.
func (g *Gateway) countTokens(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	decoded, err := g.readRequest(w, r, wire.Messages)
	if err != nil {
		return err
	}
	if conversation.Relays(c.Codec()) {
		return uncountable()
	}
	request := conversation.NewFreeRequest(c.Codec(), decoded)
	identify(r, request)
	n, err := c.CountPrompt(r.Context(), request)
	if err != nil {
		return err
	}
	_ = write(w, http.StatusOK, wire.Count(n)) // an error means that the client has left
	return nil
}

// uncountable refuses to count the tokens of a prompt.
func uncountable() *wire.Failure {
	return &wire.Failure{
		Status: http.StatusBadRequest, Code: "unknown_token_count",
		Message: "the tokens of a prompt can't be counted here: the server that samples counts them when it replies",
	}
}

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
