package conversation

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
)

// Attempt holds what the gateway knows of an attempt: its terms, and the message tree of
// its recorded calls, read from the journal. Its lock guards everything but the address.
// The lock is also held while a call is written, since calls are numbered in the order in
// which they are recorded. Methods take the lock unless they say that the caller holds
// it.
type Attempt struct {
	config  *Config
	address trace.Address

	mu     sync.Mutex
	known  bool // the fields that depend on the terms are set; it stays true
	loaded bool // the fields below agree with the journal
	fenced bool // the journal accepts no more calls
	begun  trace.Attempt
	codec  dialog.Codec
	ignore patterns

	calls   []*Call
	bytes   int // memory that the calls take
	tokens  int // tokens that the calls sampled
	tree    tree
	repeats map[string]*Repeats

	earlier  *earlier // nil if there is nothing to replay
	diverged bool     // a recorded call says where the requests begin to differ

	weight atomic.Int64 // see Weight
}

// Repeats are the recorded calls of equal requests.
type Repeats struct {
	Calls []*Call // in the order they were recorded
	// Failed reports that the last try to add a call failed. A request that is repeated
	// then does not ask for the last recorded call.
	Failed bool
}

// At returns the call of an occurrence, or nil.
func (r *Repeats) At(occurrence int) *Call {
	for _, c := range r.Calls {
		if c.Occurrence == occurrence {
			return c
		}
	}
	return nil
}

// New returns an attempt that has not read the journal yet.
func New(config *Config, address trace.Address) *Attempt {
	a := &Attempt{config: config, address: address}
	a.weigh()
	return a
}

// Lock takes the attempt's lock, so that several steps see one state.
func (a *Attempt) Lock() { a.mu.Lock() }

// Unlock releases the attempt's lock.
func (a *Attempt) Unlock() { a.mu.Unlock() }

// Address returns the address of the attempt.
func (a *Attempt) Address() trace.Address { return a.address }

// Begun returns the record of the attempt. It may be called without the lock once Enter
// has returned.
func (a *Attempt) Begun() trace.Attempt { return a.begun }

// Codec returns the codec of the attempt's terms; see Begun.
func (a *Attempt) Codec() dialog.Codec { return a.codec }

// Enter checks the attempt's key, and reads the attempt from the journal if it is not in
// memory.
func (a *Attempt) Enter(ctx context.Context, key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		begun, err := a.config.Journal.Attempt(ctx, a.address)
		if err != nil {
			return fmt.Errorf("read attempt %s: %w", a.address, err)
		}
		codec, err := a.config.Codecs(begun.Terms.Codec)
		if err != nil {
			return &Fault{fmt.Errorf("codec of attempt %s: %w", a.address, err)}
		}
		ignore, err := compile(begun.Terms.Ignore)
		if err != nil {
			return &Fault{fmt.Errorf("terms of attempt %s: %w", a.address, err)}
		}
		a.begun, a.codec, a.ignore, a.known, a.fenced = begun, codec, ignore, true, begun.Outcome != trace.Running
	}
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(a.begun.KeyHash)) != 1 {
		return ErrWrongKey
	}
	if a.fenced {
		return nil // there is nothing to continue, but models and events can be asked for
	}
	return a.Ready(ctx)
}

// Exists reports whether the attempt was found in the journal. It is false until then.
func (a *Attempt) Exists() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known
}

// Ready returns an error if the attempt accepts no calls. It reads the calls from the
// journal if they are not in memory, or if a failed write left unknown what the journal
// holds. The caller holds the lock.
func (a *Attempt) Ready(ctx context.Context) error {
	switch {
	case a.fenced:
		return fmt.Errorf("attempt %s: %w", a.address, trace.ErrFenced)
	case a.loaded:
		return nil
	}
	return a.load(ctx)
}

// Reload makes Ready read the journal again. The caller holds the lock.
func (a *Attempt) Reload() { a.loaded = false }

// load rebuilds the message tree from the journal. The caller holds the lock.
func (a *Attempt) load(ctx context.Context) error {
	if err := a.readEarlier(ctx); err != nil {
		return err
	}
	records, err := a.config.Journal.Exchanges(ctx, a.address)
	if err != nil {
		return fmt.Errorf("read calls of %s: %w", a.address, err)
	}
	before, known := a.repeats, map[string]*Call{}
	for _, c := range a.calls {
		known[c.ID] = c
	}
	a.calls, a.bytes, a.tokens, a.tree, a.repeats = nil, 0, 0, newTree(), map[string]*Repeats{}
	for i := range records {
		a.diverged = a.diverged || records[i].Divergence != nil
		c, r, err := a.restore(&records[i])
		if old, ok := known[c.ID]; ok {
			// The old call knows whether it was delivered, and requests point to it.
			old.before, c = nil, old
		}
		a.add(c)
		// Requests were decoded before they were recorded. A request that this release
		// can no longer read still counts, but can't be continued.
		if err == nil {
			a.tree.add(c, a.Canonicalize(r))
		}
	}
	for key, old := range before {
		now := a.Repeats(key)
		now.Failed = old.Failed && len(now.Calls) == len(old.Calls)
	}
	a.loaded = true
	return nil
}

// add adds a recorded call.
func (a *Attempt) add(c *Call) {
	if c.sequence == nil { // else it was read again
		a.shareTokens(c)
	}
	a.calls = append(a.calls, c)
	a.bytes += c.bytes
	a.tokens += sampledTokens(a.codec, c.Completion)
	r := a.Repeats(c.Key)
	r.Calls = append(r.Calls, c)
	a.earlier.remove(c.Key, c.Occurrence)
	a.weigh()
}

// Repeats returns the recorded calls of the requests with a key. The caller holds the
// lock.
func (a *Attempt) Repeats(key string) *Repeats {
	r, ok := a.repeats[key]
	if !ok {
		r = &Repeats{}
		a.repeats[key] = r
	}
	return r
}

// Canonicalize brings a request into its canonical form. The caller holds the lock.
func (a *Attempt) Canonicalize(r *Request) Canonical {
	return canonicalize(r.Request, a.setting(r.Request, r.Agent), a.ignore, &a.tree, r.named)
}

// Recorded returns how many calls are on record, and how many tokens they sampled. The
// caller holds the lock.
func (a *Attempt) Recorded() (calls, tokens int) { return len(a.calls), a.tokens }

// Has reports whether the attempt recorded a call of that id.
func (a *Attempt) Has(ctx context.Context, id string) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.Ready(ctx); err != nil {
		return false, err
	}
	return slices.ContainsFunc(a.calls, func(c *Call) bool { return c.ID == id }), nil
}

// Fence remembers that the attempt is over.
func (a *Attempt) Fence() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fence()
}

// fence frees the memory of the attempt. The caller holds the lock.
func (a *Attempt) fence() {
	a.fenced, a.loaded = true, false
	// A call in flight still writes to its Repeats when it completes.
	a.calls, a.bytes, a.tree, a.earlier, a.repeats = nil, 0, tree{}, nil, map[string]*Repeats{}
	a.weigh()
}
