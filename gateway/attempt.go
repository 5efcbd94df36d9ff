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
	tree    tree
	repeats map[string]*repeats
	flying  int

	earlier  *earlier // nil if there is nothing to replay
	diverged bool     // a call is on record from which the requests are others
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
		return wrongKey()
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
	records, err := g.config.Journal.Exchanges(ctx, a.address)
	if err != nil {
		return fmt.Errorf("read calls of %s: %w", a.address, err)
	}
	before, known := a.repeats, map[string]*call{}
	for _, c := range a.calls {
		known[c.id] = c
	}
	a.calls, a.tokens, a.tree, a.repeats = nil, 0, newTree(), map[string]*repeats{}
	for i := range records {
		r := &records[i]
		a.diverged = a.diverged || r.Divergence != nil
		c, q, err := a.recollect(r)
		if old, ok := known[c.id]; ok {
			// It knows whether it was delivered, and requests hold it.
			old.before, c = nil, old
		}
		a.keep(c)
		// Requests were decoded before they were recorded. One that a later
		// release no longer reads still counts, it just can't be continued.
		if err == nil {
			a.tree.grow(c, a.canonicalize(q))
		}
	}
	for key, old := range before {
		now := a.repeatsOf(key)
		now.flights = old.flights
		now.failed = old.failed && len(now.calls) == len(old.calls)
	}
	a.loaded = true
	return nil
}

// keep adds a recorded call.
func (a *attempt) keep(c *call) {
	a.calls = append(a.calls, c)
	a.tokens += spent(a.codec, c.completion)
	r := a.repeatsOf(c.key)
	r.calls = append(r.calls, c)
	a.earlier.settle(c.key, c.occurrence)
}

func (a *attempt) canonicalize(q *question) canonical {
	return canonicalize(q.order.request, a.setting(q.order.request, q.agent), a.ignore, &a.tree, q.named)
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
	// A call in flight still ends in its repeats.
	a.calls, a.tree, a.earlier, a.repeats = nil, tree{}, nil, map[string]*repeats{}
}
