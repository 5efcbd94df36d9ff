// Package conversation holds the dialogs of attempts, and makes their model calls.
//
// A [Conversation] is what a gateway knows of an attempt: its recorded calls as a tree of
// dialogs, read from the journal and appended to it, and its calls in flight. One lock
// guards all of it, and never leaves the package. A [Maker] opens conversations, and makes
// calls outside of them, which are not recorded.
//
// # What a request is
//
// A conversation answers four questions about a [Request]. Which policy answers it? The
// attempt's terms say so, given who asks for what and what the messages say. Which call is
// it? Its canonical form has a key that is equal for equal requests. What does it continue?
// The prompt begins with the exact tokens of a recorded call of the same policy, and only
// what was said since is tokenized, with the attempt's prompts in place of what they replace. Was it answered
// before? Either this attempt has recorded calls of the same
// request, or an earlier attempt has sampled one, which is replayed.
//
// # How it gets its calls
//
// A request gets one [Slot] for each choice that it asks for. A slot has a recorded call,
// or waits for a pending one. If the request repeats one in flight, the slot joins the
// pending call of that one; otherwise it reserves a new pending call.
//
// The pending calls of a request are started once each of its choices has a call. A
// pending call is sampled, recorded and completed even if its requests no longer wait. It
// is abandoned only if all of them left before it was sampled, and none of them had begun
// to read it.
//
// When slots are released, the request says whether the reply was delivered. A call whose
// reply was not delivered answers the next equal request. A client that closes a stream
// after it has read a part of it has got its reply: the next equal request is another
// sample, and waits until the closed call is on record.
//
// The package knows nothing of HTTP. It starts no goroutine that outlives the request
// that began it. Its errors are plain: [Fault], [LimitError], [FormError], those of trace,
// of model and of dialog, and wire.Failure where a field of the request is to blame.
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
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
)

// Conversation is what a gateway knows of an attempt: its terms, the message tree of its
// recorded calls, read from the journal, and its calls in flight.
//
// mu guards everything but maker and address. It is also held while a call is written,
// because calls are numbered in the order in which they are recorded. Exported methods
// lock it. Unexported methods expect that it is held, unless they say that they lock it.
type Conversation struct {
	maker   *Maker
	address record.Address

	mu     sync.Mutex
	known  bool      // the fields that depend on the terms are set; it stays true
	loaded bool      // the fields below agree with the journal
	fenced bool      // the journal accepts no more calls
	end    time.Time // when the attempt ended, once that is known
	begun  record.Attempt
	codec  dialog.Codec
	ignore patterns
	served prompts.Set // that requests are rewritten with

	calls   []*Call
	bytes   int // memory that the calls take
	tokens  int // tokens that the calls sampled
	tree    tree
	repeats map[string]*repeats // by the key of the request

	earlier  *earlier // nil if there is nothing to replay
	diverged bool     // a recorded call says where the requests begin to differ

	pending  map[string][]*pendingCall // by the key of the request
	inFlight int                       // the number of pending calls, of all keys

	weight atomic.Int64 // see Weight
}

// repeats are the recorded calls of equal requests.
type repeats struct {
	calls []*Call // in the order they were recorded
	// failed reports that the last try to add a call failed. A request that is repeated
	// then does not ask for the last recorded call.
	failed bool
}

// at returns the call of an occurrence, or nil.
func (r *repeats) at(occurrence int) *Call {
	for _, c := range r.calls {
		if c.Occurrence == occurrence {
			return c
		}
	}
	return nil
}

// Open returns the conversation of an attempt. It has not read the journal yet.
func (m *Maker) Open(address record.Address) *Conversation {
	c := &Conversation{maker: m, address: address, pending: map[string][]*pendingCall{}}
	c.weigh()
	return c
}

// Address returns the address of the attempt.
func (c *Conversation) Address() record.Address { return c.address }

// Begun returns the record of the attempt. It locks nothing, because the record does not
// change any more once Enter has returned. Call it only then.
func (c *Conversation) Begun() record.Attempt { return c.begun }

// Codec returns the codec of the attempt's terms; see Begun.
func (c *Conversation) Codec() dialog.Codec { return c.codec }

// Enter checks the attempt's key, and reads the attempt from the journal if it is not in
// memory.
func (c *Conversation) Enter(ctx context.Context, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.know(ctx); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(key))
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(c.begun.KeyHash)) != 1 {
		return ErrWrongKey
	}
	if c.fenced {
		return nil // there is nothing to continue, but spans may come late
	}
	return c.ready(ctx)
}

// know reads the attempt from the journal if it is not in memory.
func (c *Conversation) know(ctx context.Context) error {
	if !c.known {
		begun, err := c.maker.config.Journal.Attempt(ctx, c.address)
		if err != nil {
			return fmt.Errorf("read attempt %s: %w", c.address, err)
		}
		end, err := c.maker.config.Journal.AttemptEnd(ctx, c.address)
		if err != nil {
			return err
		}
		return c.set(begun, end)
	}
	return nil
}

// set sets what depends on the attempt and its terms.
func (c *Conversation) set(begun record.Attempt, end time.Time) error {
	codec, err := c.maker.config.Codecs(begun.Terms.Codec)
	if err != nil {
		return &Fault{fmt.Errorf("codec of attempt %s: %w", c.address, err)}
	}
	ignore, err := compile(begun.Terms.Ignore)
	if err != nil {
		return &Fault{fmt.Errorf("terms of attempt %s: %w", c.address, err)}
	}
	served, err := c.maker.Prompts(begun.Terms.Prompts)
	if err != nil {
		return &Fault{fmt.Errorf("prompts of attempt %s: %w", c.address, err)}
	}
	c.begun, c.codec, c.ignore, c.served, c.known, c.end, c.fenced = begun, codec, ignore, served, true, end, !end.IsZero()
	return nil
}

// End returns when the attempt ended: when it was sealed, or replaced by a later one. The time
// is zero while the attempt is open. Call it only after Enter.
func (c *Conversation) End(ctx context.Context) (time.Time, error) {
	c.mu.Lock()
	end := c.end
	c.mu.Unlock()
	if !end.IsZero() {
		return end, nil
	}
	end, err := c.maker.config.Journal.AttemptEnd(ctx, c.address)
	if err != nil || end.IsZero() {
		return end, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end = end; !c.fenced {
		c.fence()
	}
	return end, nil
}

// Exists reports whether the attempt was found in the journal. It is false until then.
func (c *Conversation) Exists() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// ready returns an error if the attempt accepts no calls. It reads the calls from the
// journal if they are not in memory, or if a failed write left unknown what the journal
// holds.
func (c *Conversation) ready(ctx context.Context) error {
	switch {
	case c.fenced:
		return fmt.Errorf("attempt %s: %w", c.address, record.ErrFenced)
	case c.loaded:
		return nil
	}
	return c.load(ctx)
}

// load rebuilds the message tree from the journal.
func (c *Conversation) load(ctx context.Context) error {
	if err := c.readEarlier(ctx); err != nil {
		return err
	}
	records, err := c.maker.config.Journal.Exchanges(ctx, c.address)
	if err != nil {
		return fmt.Errorf("read calls of %s: %w", c.address, err)
	}
	before, known := c.repeats, map[string]*Call{}
	for _, call := range c.calls {
		known[call.ID] = call
	}
	c.calls, c.bytes, c.tokens, c.tree, c.repeats = nil, 0, 0, newTree(), map[string]*repeats{}
	for i := range records {
		c.diverged = c.diverged || records[i].Divergence != nil
		call, r, err := c.restore(&records[i])
		if old, ok := known[call.ID]; ok {
			// The old call knows whether it was delivered, and requests point to it.
			old.head, call = nil, old
		}
		c.add(call)
		// Requests were decoded before they were recorded. A request that this release
		// can no longer read still counts, but can't be continued.
		if err == nil {
			c.tree.add(call, c.canonicalize(r))
		}
	}
	for key, old := range before {
		now := c.repeatsOf(key)
		now.failed = old.failed && len(now.calls) == len(old.calls)
	}
	c.loaded = true
	return nil
}

// add adds a recorded call.
func (c *Conversation) add(call *Call) {
	if call.sequence == nil { // else it was read again
		c.shareTokens(call)
	}
	c.calls = append(c.calls, call)
	c.bytes += call.bytes
	c.tokens += sampledTokens(c.codec, call.Completion)
	r := c.repeatsOf(call.Key)
	r.calls = append(r.calls, call)
	c.earlier.remove(call.Key, call.Occurrence)
	c.weigh()
}

// repeatsOf returns the recorded calls of the requests with a key.
func (c *Conversation) repeatsOf(key string) *repeats {
	r, ok := c.repeats[key]
	if !ok {
		r = &repeats{}
		c.repeats[key] = r
	}
	return r
}

// Has reports whether the attempt recorded a call of that id.
func (c *Conversation) Has(ctx context.Context, id string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ready(ctx); err != nil {
		return false, err
	}
	return slices.ContainsFunc(c.calls, func(call *Call) bool { return call.ID == id }), nil
}

// Fence remembers that the attempt is over.
func (c *Conversation) Fence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fence()
}

// fence frees the memory of the attempt.
func (c *Conversation) fence() {
	c.fenced, c.loaded = true, false
	// A call in flight still writes to its repeats when it completes.
	c.calls, c.bytes, c.tree, c.earlier, c.repeats = nil, 0, tree{}, nil, map[string]*repeats{}
	c.weigh()
}

// Approximate bytes that an object takes in memory, not counting its tokens, texts and
// bodies.
const (
	conversationWeight = 4 << 10
	callWeight         = 2 << 10 // with its entries in the maps of the conversation
	messageWeight      = 256     // twice: in the request, and in the reply
)

// Weight returns about how many bytes the conversation takes in memory. It locks nothing.
func (c *Conversation) Weight() int64 { return c.weight.Load() }

// weigh brings the weight up to date.
func (c *Conversation) weigh() {
	weight := conversationWeight + c.bytes
	if c.earlier != nil {
		weight += c.earlier.bytes
	}
	c.weight.Store(int64(weight))
}

// shareTokens stores the tokens of a call after those of the call that it continues. The
// first such call shares the array of its parent, so memory grows only with the new
// tokens of a dialog. No other goroutine may have the call yet.
func (c *Conversation) shareTokens(call *Call) {
	n, all := len(call.Prompt), len(call.Prompt)+len(call.Completion)
	room, before := all, []int32(nil)
	if call.Parent >= 0 && call.Parent < len(c.calls) && c.calls[call.Parent].begins(call.Prompt) {
		if parent := c.calls[call.Parent]; !parent.continued {
			parent.continued = true
			// Twice the room, so that the arrays that a dialog has outgrown take no more
			// memory than the last one.
			room, before = 2*all, parent.sequence
		}
	}
	if cap(before) < all {
		before = make([]int32, 0, room)
		call.bytes += 4 * room
	}
	call.sequence = append(append(before, call.Prompt[len(before):]...), call.Completion...)
	call.Prompt, call.Completion = call.sequence[:n:n], call.sequence[n:all:all]
	call.bytes += callWeight + 4*cap(call.Logprobs) + cap(call.Untrained) + cap(call.Form) + cap(call.Response)
	for _, text := range []string{call.message.Content, call.message.Reasoning, call.ParseError, call.problem} {
		call.bytes += len(text)
	}
	for _, tc := range call.message.ToolCalls {
		call.bytes += messageWeight + len(tc.Function.Arguments)
	}
	if call.request != nil { // the body, and the texts that were decoded from it
		call.bytes += 2*cap(call.request.Body) + messageWeight*len(call.dialog)
	}
}
