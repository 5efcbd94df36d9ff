package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/wire"
)

// ask answers the model calls that attempts make by an API.
func (g *Gateway) ask(api wire.API) func(http.ResponseWriter, *http.Request, *attempt) error {
	return func(w http.ResponseWriter, r *http.Request, a *attempt) error {
		body, request, err := g.readRequest(w, r, api)
		if err != nil {
			return err
		}
		if request.Model == "" {
			request.Model = a.begun.Terms.Policy
		}
		o, err := newOrder(a.begun.Terms.Codec, a.codec, request)
		if err != nil {
			return err
		}
		return g.answer(w, r, o, &inside{g, a, questionOf(r, body, o)})
	}
}

func (g *Gateway) readRequest(w http.ResponseWriter, r *http.Request, api wire.API) ([]byte, *wire.Request, error) {
	body, err := g.readBody(w, r)
	if err != nil {
		return nil, nil, err
	}
	request, err := wire.Decode(api, body)
	if err != nil {
		return nil, nil, err
	}
	return body, request, nil
}

// answer gives a request its reply, streamed or whole.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, o *order, h host) error {
	if o.request.Stream {
		return g.tell(w, r, o, h)
	}
	for {
		err := answerOnce(w, r, o, h)
		if !errors.Is(err, errAgain) {
			return err
		}
		if err := r.Context().Err(); err != nil {
			return fmt.Errorf("wait for call: %w", err)
		}
	}
}

func answerOnce(w http.ResponseWriter, r *http.Request, o *order, h host) error {
	seats, err := h.board(r.Context())
	if err != nil {
		return err
	}
	delivered := false
	defer func() { h.vacate(seats, delivered) }()
	calls, err := arriveAll(r.Context(), seats)
	if err != nil {
		return err
	}
	body := calls[0].response
	if len(calls) > 1 {
		if body, err = o.request.Encode(o.reply(calls...)); err != nil {
			return fault(fmt.Errorf("encode reply %s: %w", calls[0].id, err))
		}
	}
	w.Header().Set("X-Request-Id", calls[0].id)
	// Writing to a client that left can succeed, and one that has its reply may
	// leave at once: only who was there before counts.
	there := r.Context().Err() == nil
	err = write(w, http.StatusOK, body)
	delivered = there && err == nil
	return nil
}

func arriveAll(ctx context.Context, seats []seat) ([]*call, error) {
	calls := make([]*call, len(seats))
	for i := range seats {
		var err error
		if calls[i], err = seats[i].arrive(ctx); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// countTokens tells how many tokens the prompt of a Messages request would have.
func (g *Gateway) countTokens(w http.ResponseWriter, r *http.Request, a *attempt) error {
	body, request, err := g.readRequest(w, r, wire.Messages)
	if err != nil {
		return err
	}
	if relays(a.codec) {
		return uncountable()
	}
	q := questionOf(r, body, &order{request: request, codec: a.codec})
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ready(r.Context(), g); err != nil {
		return err
	}
	h, err := a.history(q, a.canonicalize(q))
	if err != nil {
		return err
	}
	_ = write(w, http.StatusOK, wire.Count(len(h.prompt))) // who left does not need it
	return nil
}
