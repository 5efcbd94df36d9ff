package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
)

// attempt is what a gateway knows of an attempt: the message tree of its
// recorded calls and the calls in flight. All but the address is guarded by mu,
// which is also held while a call is written, since calls are numbered in the
// order they are recorded.
type attempt struct {
	address trace.Address

	mu     sync.Mutex
	known  bool // what the terms decide is set; it never changes
	loaded bool // what follows agrees with the journal
	fenced bool // the journal takes nothing more
	begun  trace.Attempt
	codec  dialog.Codec
	ignore patterns

	calls   []*call
	tokens  int // sampled
	heads   map[digest]*call
	issued  map[string]*call // by the ids of its tool calls
	repeats map[string]*repeats
	flying  int

	earlier  *earlier // nil if there is nothing to replay
	diverged bool     // a call is on record from which the requests are others
}

// call is a recorded call.
type call struct {
	id         string
	seq        int
	key        string
	occurrence int
	exchange   string // the request that it answered first, or last if it was lost
	prompt     []int32
	completion []int32
	reply      dialog.Message
	response   []byte
	writers    int  // requests that are being answered with it
	delivered  bool // its response was written whole once, as far as known
}

// enter admits whoever holds the attempt's key and reads the attempt from the
// journal if it is not in memory.
func (a *attempt) enter(ctx context.Context, g *Gateway, key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		begun, err := g.config.Journal.Attempt(ctx, a.address)
		if err != nil {
			return fmt.Errorf("read attempt %s: %w", a.address, err)
		}
		codec, err := g.config.Codecs(begun.Terms.Codec)
		if err != nil {
			return fault(fmt.Errorf("codec of attempt %s: %w", a.address, err))
		}
		ignore, err := compile(begun.Terms.Ignore)
		if err != nil {
			return fault(fmt.Errorf("terms of attempt %s: %w", a.address, err))
		}
		a.begun, a.codec, a.ignore, a.known, a.fenced = begun, codec, ignore, true, begun.Outcome != trace.Running
	}
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(a.begun.KeyHash)) != 1 {
		return &failure{status: 403, code: "wrong_key", message: "this key is not that of attempt " + a.address.String()}
	}
	if a.fenced {
		return nil // the tree is gone, but there is something to say
	}
	return a.ready(ctx, g)
}

// exists reports whether the journal was found to have the attempt.
func (a *attempt) exists() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// ready reports whether the attempt takes calls, having read it again if a
// failed write left in doubt what the journal holds. The caller holds mu.
func (a *attempt) ready(ctx context.Context, g *Gateway) error {
	switch {
	case a.fenced:
		return fenced(nil)
	case a.loaded:
		return nil
	}
	return a.load(ctx, g)
}

// load rebuilds the message tree from the journal. The caller holds mu.
func (a *attempt) load(ctx context.Context, g *Gateway) error {
	if err := a.recall(ctx, g); err != nil {
		return err
	}
	records, err := g.config.Journal.Calls(ctx, a.address)
	if err != nil {
		return fmt.Errorf("read calls of %s: %w", a.address, err)
	}
	before, known := a.repeats, map[string]*call{}
	for _, c := range a.calls {
		known[c.id] = c
	}
	a.calls, a.tokens = nil, 0
	a.heads, a.issued, a.repeats = map[digest]*call{}, map[string]*call{}, map[string]*repeats{}
	for _, r := range records {
		c := &call{
			id: r.ID, seq: r.Seq, key: r.Key, occurrence: r.Occurrence, exchange: r.Exchange, prompt: r.Prompt, completion: r.Completion,
			response: r.Response, delivered: true,
		}
		if old, ok := known[c.id]; ok {
			c = old // it knows whether it was delivered
		}
		a.diverged = a.diverged || r.Divergence != nil
		// Requests were decoded before they were recorded. One that a later
		// release no longer reads still counts, it just can't be continued.
		request, err := decodeChat(r.Request)
		if err != nil {
			a.keep(c)
			continue
		}
		c.reply, _ = a.codec.Parse(r.Completion, request.usable(), toolCallIDs(idOf(r.Seed)))
		a.grow(c, a.canonicalize(request, r.Agent))
	}
	for key, old := range before {
		now := a.repeatsOf(key)
		now.flights = old.flights
		now.failed = old.failed && len(now.calls) == len(old.calls)
	}
	a.loaded = true
	return nil
}

func (a *attempt) canonicalize(request *chatRequest, agent string) canonical {
	return canonicalize(request, a.setting(request, agent), a.ignore, func(toolCall string) (dialog.Message, bool) {
		c, ok := a.issued[toolCall]
		if !ok {
			return dialog.Message{}, false
		}
		return c.reply, true
	})
}

func (a *attempt) setting(request *chatRequest, agent string) settingForm {
	return settingForm{agent, request.forbidTools, a.replyLimit(request)}
}

// replyLimit is the most tokens of a reply: the attempt's terms, or less if the
// client wants less.
func (a *attempt) replyLimit(request *chatRequest) int {
	if limit := a.begun.Terms.MaxTokens; request.maxTokens == 0 || request.maxTokens > limit {
		return limit
	}
	return request.maxTokens
}

// keep adds a recorded call that can't be continued.
func (a *attempt) keep(c *call) {
	a.calls = append(a.calls, c)
	a.tokens += len(c.completion)
	r := a.repeatsOf(c.key)
	r.calls = append(r.calls, c)
	a.earlier.settle(c.key, c.occurrence)
}

// grow adds a recorded call to the tree.
func (a *attempt) grow(c *call, request canonical) {
	a.keep(c)
	positions := map[string]string{}
	end := link(request.chain[len(request.turns)], formOf(c.reply, positions))
	// Of equal samples for one request the last stands, in whichever order calls in
	// flight together were recorded.
	if old, ok := a.heads[end]; !ok || old.key != c.key || old.occurrence < c.occurrence {
		a.heads[end] = c
	}
	for _, t := range c.reply.ToolCalls {
		a.issued[t.ID] = c
	}
}

// prompt gives the tokens to sample after, and the call that they continue: the
// one with which most of the turns were laid out already.
func (a *attempt) prompt(request canonical, tools []dialog.Tool) (ids []int32, parent int, err error) {
	for n := len(request.turns); n > 0; n-- {
		head, ok := a.heads[request.chain[n]]
		if !ok {
			continue
		}
		bridge, err := a.codec.Bridge(request.turns[n:], tools)
		if err != nil {
			return nil, 0, fmt.Errorf("continue call %s: %w", head.id, err)
		}
		ids = slices.Concat(head.prompt, head.completion)
		if stop := a.codec.Stop(); len(head.completion) == 0 || !slices.Contains(stop, ids[len(ids)-1]) {
			ids = append(ids, stop[0]) // the reply was cut off
		}
		return append(ids, bridge...), head.seq, nil
	}
	ids, err = a.codec.Prompt(request.turns, tools)
	return ids, -1, err
}

// has reports whether the attempt recorded a call of that id.
func (a *attempt) has(ctx context.Context, g *Gateway, id string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ready(ctx, g); err != nil {
		return false, err
	}
	return slices.ContainsFunc(a.calls, func(c *call) bool { return c.id == id }), nil
}

// fence gives up what was held for the attempt. The caller holds mu.
func (a *attempt) fence() {
	a.fenced, a.loaded = true, false
	a.calls, a.heads, a.issued, a.earlier = nil, nil, nil, nil
}
