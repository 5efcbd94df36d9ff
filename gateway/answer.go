package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/wire"
)

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
