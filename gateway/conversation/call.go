package conversation

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// Call is a sampled call and the content of its reply. It is a recorded call of an
// attempt, or a served one outside attempts.
type Call struct {
	trace.Exchange        // as recorded, without the body of the request
	stem           string // the part that its ids share
	content
	created time.Time

	// The conversation's mu guards the fields about the delivery.
	writers   int  // requests that are being answered with it
	delivered bool // its response was once written completely, as far as known

	sequence  []int32 // prompt and completion, with room for a call that continues it
	continued bool    // another call already uses the room
	bytes     int     // memory that the call takes, without what it shares with its parent

	head *Call // the recorded call that its dialog continues
	// Requests of the Responses API may name the reply that they continue. For such
	// requests the call keeps its own request, and the dialog with the reply but without
	// instructions.
	request *wire.Request
	dialog  []dialog.Message
	hidden  bool // requests can't name it any more
}

// newCall returns the call of a record; r is the request that the call answers.
func newCall(record *trace.Exchange, stem string, r *Request, created time.Time) *Call {
	c := &Call{Exchange: *record, stem: stem, created: created}
	c.parse(r)
	return c
}

// parse decodes the completion.
func (c *Call) parse(r *Request) {
	c.content = r.parse(c.Completion, c.stem)
	if c.api() == wire.Responses {
		c.request, c.dialog, c.hidden = r.Request, append(r.input(), c.message), r.Forget
	}
}

// restore returns the call of a record, and the request that it answered. A call that is
// returned with an error can't be continued, but is otherwise valid.
func (c *Conversation) restore(record *trace.Exchange) (*Call, *Request, error) {
	call := &Call{Exchange: *record, stem: stemOf(record.Seed), created: createdOf(record), delivered: true}
	call.Request = nil
	request, err := wire.Decode(call.api(), record.Request)
	if err != nil {
		return call, nil, err
	}
	r, err := recordedRequest(c.codec, request, record.Form)
	if err != nil {
		return call, nil, err
	}
	r.Agent = record.Agent
	if err := c.resume(r); err != nil {
		return call, nil, err
	}
	call.parse(r)
	return call, r, nil
}

// commit writes a call to the journal as the attempt's next one and adds it. An error that
// wraps trace.ErrConflict says that another gateway has recorded calls meanwhile. The
// caller has set the parent of a call that is not replayed.
func (c *Conversation) commit(ctx context.Context, r *Request, form canonicalRequest, record *trace.Exchange, created time.Time) (*Call, error) {
	record.Seq = len(c.calls)
	replayed := record.ReplayedFrom != 0
	if replayed {
		record.Parent = c.longestPrefix(record.Prompt)
	} else {
		record.Divergence = c.divergence(ctx, form)
	}
	call := newCall(record, stemOf(record.Seed), r, created)
	record.ParseError = call.problem
	if !replayed {
		var err error
		if record.Response, err = r.response(call); err != nil {
			return nil, err
		}
	}
	err := c.maker.config.Journal.AppendCall(ctx, record)
	switch {
	case errors.Is(err, trace.ErrConflict):
		return nil, err
	case errors.Is(err, trace.ErrFenced):
		c.fence()
		return nil, err
	case err != nil:
		// The journal may have committed it nevertheless.
		c.loaded = false
		c.maker.config.Log.Warn("call not recorded", zap.Stringer("rollout", c.address), zap.String("call", record.ID), zap.Error(err))
		return nil, &Fault{fmt.Errorf("append call %s: %w", record.ID, err)}
	}
	call.Exchange = *record
	call.Request = nil
	c.diverged = c.diverged || record.Divergence != nil
	c.add(call)
	c.tree.add(call, form)
	return call, nil
}

// api returns the API of the call. Calls of Chat have none on record, see recordedAPI:
// the first releases had no other API.
func (c *Call) api() wire.API {
	if c.API == "" {
		return wire.Chat
	}
	return wire.API(c.API)
}

// recordedAPI returns an API as calls record it: Chat as the empty string.
func recordedAPI(api wire.API) string {
	if api == wire.Chat {
		return ""
	}
	return string(api)
}

// createdOf returns the creation time in the reply of a call, or when the call began if
// the reply has none.
func createdOf(record *trace.Exchange) time.Time {
	var times struct {
		Created   float64 `json:"created"`
		CreatedAt float64 `json:"created_at"`
	}
	// A response is ours; if it can't be read, it has no time.
	if err := json.Unmarshal(record.Response, &times); err != nil || times.Created+times.CreatedAt == 0 {
		return record.Started
	}
	return time.Unix(int64(times.Created+times.CreatedAt), 0)
}

// begins reports whether ids begin with the prompt and the completion of the call.
func (c *Call) begins(ids []int32) bool {
	n, all := len(c.Prompt), len(c.Prompt)+len(c.Completion)
	return all <= len(ids) && slices.Equal(c.Completion, ids[n:all]) && slices.Equal(c.Prompt, ids[:n])
}

// longestPrefix returns the Seq of the call that the prompt continues, the longest if
// it continues several, or -1.
func (c *Conversation) longestPrefix(prompt []int32) int {
	longest, seq := 0, -1
	for _, call := range slices.Backward(c.calls) {
		if all := len(call.Prompt) + len(call.Completion); all > longest && call.begins(prompt) {
			longest, seq = all, call.Seq
		}
	}
	return seq
}

// seedOf returns the seed of a call. It does not depend on the run's name or the
// attempt's number, so equal runs and repeated attempts sample the same.
func seedOf(runSeed uint64, r trace.RolloutID, key string, occurrence int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite call\n%d\n%s\n%d\n%d\n%d\n%s\n%d\n",
		runSeed, r.Kind, r.Step, r.Task, r.Sample, key, occurrence))
	return binary.BigEndian.Uint64(sum[:])
}

// stemOf returns the part that the ids of a call share, 24 hex digits.
func stemOf(seed uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "fulgurite id\n%d\n", seed))
	return hex.EncodeToString(sum[:12])
}

// toolCallIDs returns a function that returns the id of a reply's k-th tool call.
func toolCallIDs(stem string) func(k int) string {
	return func(k int) string { return fmt.Sprintf("call_%s_%d", stem, k) }
}

// RandomNumber returns a seed for calls that are not recorded.
func RandomNumber() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}
