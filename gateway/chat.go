package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

const (
	// retryHeader counts how often the forwarder in the agent's worker has asked
	// the same before without getting a whole reply.
	retryHeader = "X-Fulgurite-Retry"
	// sdkRetryHeader is what the common SDKs send when they ask again. The
	// forwarder adds its own count to it.
	sdkRetryHeader = "X-Stainless-Retry-Count"
	// exchangeHeader names one request of the agent, so that a forwarder which asks
	// again gets the reply to that one and to no other like it.
	exchangeHeader = "X-Fulgurite-Exchange"
	// maxExchange is the most bytes of such a name; longer ones are not looked at.
	maxExchange = 64
)

// errAgain sends a request back to the beginning, since what it waited for or was
// sampled after is not what stands.
var errAgain = errors.New("the attempt has changed")

// question is a chat request on its way to a reply.
type question struct {
	request  *chatRequest
	body     []byte
	agent    string
	exchange string // empty if the client does not say
	reasked  bool   // the forwarder repeats this exchange
	again    bool   // the client repeats an earlier request
	looked   bool   // the journal was read again for it
}

func questionOf(r *http.Request, body []byte, request *chatRequest) *question {
	count := func(name string) int {
		n, _ := strconv.Atoi(r.Header.Get(name)) // absent or odd: never
		return n
	}
	q := &question{request: request, body: body, agent: r.PathValue("agent"), exchange: r.Header.Get(exchangeHeader)}
	if len(q.exchange) > maxExchange {
		q.exchange = ""
	}
	reasked := count(retryHeader)
	q.reasked = reasked > 0
	q.again = count(sdkRetryHeader) > reasked || q.reasked && q.exchange == ""
	return q
}

// chat answers a model call of an attempt.
func (g *Gateway) chat(w http.ResponseWriter, r *http.Request, a *attempt) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	request, err := decodeChat(body)
	if err != nil {
		return err
	}
	c, err := g.answer(r.Context(), a, questionOf(r, body, request))
	if err != nil {
		return err
	}
	w.Header().Set("X-Request-Id", c.id)
	// Writing to a client that left can succeed, and one that has its reply may
	// leave at once: only who was there before counts.
	there := r.Context().Err() == nil
	err = write(w, http.StatusOK, c.response)
	a.mu.Lock()
	defer a.mu.Unlock()
	c.writers--
	c.delivered = c.delivered || there && err == nil
	return nil
}

// answer returns the recorded call that answers q, its writers counting the
// caller.
func (g *Gateway) answer(ctx context.Context, a *attempt, q *question) (*call, error) {
	for {
		c, err := g.answerOnce(ctx, a, q)
		if !errors.Is(err, errAgain) {
			return c, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for call: %w", ctx.Err())
		}
	}
}

func (g *Gateway) answerOnce(ctx context.Context, a *attempt, q *question) (*call, error) {
	a.mu.Lock()
	if err := a.ready(ctx, g); err != nil {
		a.mu.Unlock()
		return nil, err
	}
	form := a.canonicalize(q.request, q.agent)
	repeats := a.repeatsOf(form.key)
	c, f := repeats.standing(q, g.config.NoReplay)
	switch {
	case c != nil:
		c.writers++
		if q.exchange != "" {
			c.exchange = q.exchange
		}
		a.mu.Unlock()
		g.count.rejoined.Add(1)
		return c, nil
	case f != nil:
		c, err := a.join(ctx, f)
		if c != nil {
			g.count.rejoined.Add(1)
		}
		return c, err
	case (q.again || q.reasked) && !q.looked && !g.config.NoReplay:
		// Another gateway may have answered it since this one read the journal.
		q.looked, a.loaded = true, false
		a.mu.Unlock()
		return nil, errAgain
	}
	t, err := a.takeOff(q, form)
	if err != nil {
		a.mu.Unlock()
		return nil, err
	}
	if t.source != nil {
		return g.replay(ctx, a, t)
	}
	// Others may join, so the call outlives the request that began it.
	flying, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.flight.cancel = cancel
	stop := a.watch(ctx, t.flight)
	a.mu.Unlock()
	g.fly(flying, a, t)
	stop()
	cancel()
	if t.flight.orphaned {
		return nil, fmt.Errorf("wait for call: %w", ctx.Err())
	}
	return t.flight.call, t.flight.err
}
