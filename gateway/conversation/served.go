package conversation

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Served says how a request to a served version is recorded.
type Served struct {
	// Client is the Key of the conversation.
	Client string
	// Scope is hashed with each dialog: only requests with the same scope continue it. See
	// DialogDigest. It is empty if the client names its conversation, which then is not found
	// by its messages.
	Scope string
	// Deliver delivers a reply that can't be recorded, instead of refusing it, and Unrecorded
	// is then told why it could not be.
	Deliver    bool
	Unrecorded func(c record.Address, cause error)
	// Redact rewrites a text before it is stored; nil stores texts as they are. A call of
	// which it changes something is stored without tokens.
	Redact func(ctx context.Context, text string) (string, error)
}

// EnterServed is Enter for a conversation with a served version, whose attempt has no key:
// the caller has to know that the client may have it. If the conversation has at least as
// many calls on record as the caller says, and fewer in memory, another gateway has recorded
// some, and they are read. A conversation that was removed is record.ErrFenced.
func (c *Conversation) EnterServed(ctx context.Context, calls int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.know(ctx); err != nil {
		return err
	}
	if c.address.Kind != record.Served {
		return ErrWrongKey
	}
	if len(c.calls) < calls {
		c.loaded = false
	}
	return c.ready(ctx)
}

// EnterNew is EnterServed for a conversation that the caller has just begun with the terms. It
// has no calls yet, so nothing is read from the journal.
func (c *Conversation) EnterNew(ctx context.Context, begun time.Time, terms record.Terms) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known { // another request has found it meanwhile
		return c.ready(ctx)
	}
	if err := c.set(record.Attempt{Address: c.address, Terms: terms, Begun: begun}, time.Time{}); err != nil {
		return err
	}
	c.tree, c.repeats, c.loaded = newTree(), map[string]*repeats{}, true
	return nil
}

// Unused reports whether the conversation has no calls, neither recorded nor in flight, as far
// as this gateway knows.
func (c *Conversation) Unused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (c.loaded || !c.known) && !c.fenced && len(c.calls) == 0 && c.inFlight == 0
}

// DialogDigest returns the digest of a dialog in a scope, in hex, by which its continuation
// finds the conversation. Dialogs have the same digest if the reply of each is repeated as
// clients do: with space cut off, arguments written differently, or without its reasoning.
func DialogDigest(scope string, messages []dialog.Message) string {
	var chain chainWriter
	end := chain.link(digest{}, scope)
	positions := map[string]string{}
	for i, m := range messages {
		for k, tc := range m.ToolCalls {
			positions[tc.ID] = fmt.Sprintf("%d.%d", i, k)
		}
		end = chain.link(end, formOf(m, positions))
	}
	return hex.EncodeToString(end[:])
}

// OpeningDigest returns the digest of a request that begins a conversation, by which the same
// request finds the conversation if the client sends it again. It differs from every
// DialogDigest.
func OpeningDigest(scope string, r *Request) string {
	temperature, topP := r.sampling()
	return DialogDigest(fmt.Sprintf("opening\n%q\n%q %q %v\n%d %d %v %v %v", scope, r.API, r.Text, r.Tokens, r.N, r.MaxTokens, temperature, topP, r.Stop), r.Dialog)
}

// sampling returns the temperature and the top-p that a request asks for, with OpenAI's
// defaults. A top-p of 0 is all, as in a record.Call.
func (r *Request) sampling() (temperature, topP float64) {
	temperature = 1
	if r.Temperature != nil {
		temperature = *r.Temperature
	}
	if r.TopP != nil && *r.TopP < 1 {
		topP = *r.TopP
	}
	return temperature, topP
}

// seedOf returns the seed of a choice: the client's, counted on, or a random one.
func (r *Request) seedOf(choice int) uint64 {
	if r.Seed == nil {
		return RandomNumber()
	}
	return uint64(*r.Seed) + uint64(choice)
}

// Replaced returns how many texts of the request the prompts of the set replace.
func (r *Request) Replaced(set prompts.Set) (int, error) {
	if r.API == wire.Completions {
		return 0, nil
	}
	read, err := r.reading(set, r.Dialog)
	return read.replaced, err
}

// stemOfCall returns the part that the ids of a call share. It follows from the seed, except
// where clients choose seeds.
func (c *Conversation) stemOfCall(exchange *record.Exchange) string {
	if c.begun.Terms.ClientSampling {
		return exchange.ID[strings.LastIndexAny(exchange.ID, "-_")+1:]
	}
	return stemOf(exchange.Seed)
}

// redact returns the record of a call as it is stored: with the texts that the redactor makes
// of the request and the reply. If it changes one, the record loses its tokens, which would
// give the text away, and everything that belongs to them.
func (c *Conversation) redact(ctx context.Context, r *Request, exchange *record.Exchange) (*record.Exchange, error) {
	if r.Served == nil || r.Served.Redact == nil {
		return exchange, nil
	}
	if r.Tokens != nil {
		return nil, &Fault{fmt.Errorf("redact call %s: its prompt is tokens, which have no text to redact", exchange.ID)}
	}
	b := bodyRedactor{ctx: ctx, redact: r.Served.Redact}
	request, changed, err := b.body(exchange.Request)
	if err != nil {
		return nil, &Fault{fmt.Errorf("redact the request of call %s: %w", exchange.ID, err)}
	}
	response, also, err := b.body(exchange.Response)
	if err != nil {
		return nil, &Fault{fmt.Errorf("redact the reply of call %s: %w", exchange.ID, err)}
	}
	if !changed && !also {
		return exchange, nil
	}
	out := *exchange
	out.Request, out.Response = request, response
	out.Prompt, out.Completion, out.Logprobs, out.Untrained, out.Form = nil, nil, nil, nil, nil
	out.Parent, out.Drift, out.Divergence, out.ParseError = -1, false, nil, ""
	out.Served.Redacted = true
	return &out, nil
}

// servedCall returns what the record of a conversation learns with a call; nil in other
// attempts. The prompt of Completions is no dialog that a request could repeat.
func (c *Conversation) servedCall(r *Request, call *Call) *record.ServedCall {
	if r.Served == nil {
		return nil
	}
	out := &record.ServedCall{Client: r.Served.Client}
	if r.API != wire.Completions && r.Served.Scope != "" {
		out.Digest = DialogDigest(r.Served.Scope, append(r.Dialog[:len(r.Dialog):len(r.Dialog)], call.message))
	}
	return out
}

// recorded returns the recorded call of an id, or nil.
func (c *Conversation) recorded(id string) *Call {
	for _, call := range slices.Backward(c.calls) {
		if call.ID == id {
			return call
		}
	}
	return nil
}

// renumber gives a call that is to be recorded another occurrence if its own was recorded
// meanwhile.
func (c *Conversation) renumber(p *pendingCall, exchange *record.Exchange) {
	if c.repeatsOf(exchange.Key).at(exchange.Occurrence) != nil {
		p.occurrence = c.freeOccurrenceFor(p, exchange.Key)
		exchange.Occurrence = p.occurrence
	}
}

// deliverUnrecorded returns the call that answers p although it could not be recorded.
func (c *Conversation) deliverUnrecorded(p *pendingCall, exchange *record.Exchange, cause error) (*Call, error) {
	call := newCall(exchange, p.stem, p.request, p.created)
	response, err := p.request.response(call)
	if err != nil {
		return nil, err
	}
	call.Response = response
	c.maker.config.Metrics.Served(false)
	p.request.Served.Unrecorded(c.address, cause)
	return call, nil
}
