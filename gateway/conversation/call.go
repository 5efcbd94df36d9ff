package conversation

import (
	"context"
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
	Stem           string // the part that its ids share
	Parsed
	Created time.Time

	// Package inflight keeps these fields about the delivery; the attempt's lock guards
	// them.
	Writers   int  // requests that are being answered with it
	Delivered bool // its response was once written completely, as far as known

	sequence  []int32 // prompt and completion, with room for a call that continues it
	continued bool    // another call already uses the room
	bytes     int     // memory that the call takes, without what it shares with its parent

	before *Call // the recorded call that its dialog continues
	// Requests of the Responses API may name the reply that they continue. For such
	// requests the call keeps its own request, and the dialog with the reply but without
	// instructions.
	request *wire.Request
	dialog  []dialog.Message
	hidden  bool // requests can't name it any more
}

// NewCall returns the call of a record; r is the request that the call answers.
func NewCall(record *trace.Exchange, stem string, r *Request, created time.Time) *Call {
	c := &Call{Exchange: *record, Stem: stem, Created: created}
	c.parse(r)
	return c
}

// parse decodes the completion.
func (c *Call) parse(r *Request) {
	c.Parsed = r.Parse(c.Completion, c.Stem)
	if c.api() == wire.Responses {
		c.request, c.dialog, c.hidden = r.Request, append(r.uninstructed(), c.Message), r.Forget
	}
}

// restore returns the call of a record, and the request that it answered. A call that is
// returned with an error can't be continued, but is otherwise valid.
func (a *Attempt) restore(record *trace.Exchange) (*Call, *Request, error) {
	c := &Call{Exchange: *record, Stem: Stem(record.Seed), Created: CreatedOf(record), Delivered: true}
	c.Request = nil
	request, err := wire.Decode(c.api(), record.Request)
	if err != nil {
		return c, nil, err
	}
	r, err := recordedRequest(a.codec, request, record.Form)
	if err != nil {
		return c, nil, err
	}
	r.Agent = record.Agent
	if err := a.Resume(r); err != nil {
		return c, nil, err
	}
	c.parse(r)
	return c, r, nil
}

// Append commits a call as the attempt's next one and adds it. An error that wraps
// trace.ErrConflict says that another gateway has recorded calls meanwhile. The caller
// holds the lock, and has set the parent of a call that is not replayed.
func (a *Attempt) Append(ctx context.Context, r *Request, form Canonical, record *trace.Exchange, created time.Time) (*Call, error) {
	record.Seq = len(a.calls)
	replayed := record.ReplayedFrom != 0
	if replayed {
		record.Parent = a.longestPrefix(record.Prompt)
	} else {
		record.Divergence = a.divergence(ctx, form)
	}
	c := NewCall(record, Stem(record.Seed), r, created)
	record.ParseError = c.Problem
	if !replayed {
		var err error
		if record.Response, err = r.Response(c); err != nil {
			return nil, err
		}
	}
	err := a.config.Journal.AppendCall(ctx, record)
	switch {
	case errors.Is(err, trace.ErrConflict):
		return nil, err
	case errors.Is(err, trace.ErrFenced):
		a.fence()
		return nil, err
	case err != nil:
		// The journal may have committed it nevertheless.
		a.loaded = false
		a.config.Log.Warn("call not recorded", zap.Stringer("rollout", a.address), zap.String("call", record.ID), zap.Error(err))
		return nil, &Fault{fmt.Errorf("append call %s: %w", record.ID, err)}
	}
	c.Exchange = *record
	c.Request = nil
	a.diverged = a.diverged || record.Divergence != nil
	a.add(c)
	a.tree.add(c, form)
	return c, nil
}

// api returns the API of the call. Calls of Chat have none on record, see RecordedAPI:
// the first releases had no other API.
func (c *Call) api() wire.API {
	if c.API == "" {
		return wire.Chat
	}
	return wire.API(c.API)
}

// RecordedAPI returns an API as calls record it: Chat as the empty string.
func RecordedAPI(api wire.API) string {
	if api == wire.Chat {
		return ""
	}
	return string(api)
}

// CreatedOf returns the creation time in the reply of a call, or when the call began if
// the reply has none.
func CreatedOf(record *trace.Exchange) time.Time {
	var says struct {
		Created   float64 `json:"created"`
		CreatedAt float64 `json:"created_at"`
	}
	// A response is ours; if it can't be read, it has no time.
	if err := json.Unmarshal(record.Response, &says); err != nil || says.Created+says.CreatedAt == 0 {
		return record.Started
	}
	return time.Unix(int64(says.Created+says.CreatedAt), 0)
}

// begins reports whether ids begin with the prompt and the completion of the call.
func (c *Call) begins(ids []int32) bool {
	n, all := len(c.Prompt), len(c.Prompt)+len(c.Completion)
	return all <= len(ids) && slices.Equal(c.Completion, ids[n:all]) && slices.Equal(c.Prompt, ids[:n])
}

// longestPrefix returns the Seq of the call that the prompt continues, the longest if
// it continues several, or -1.
func (a *Attempt) longestPrefix(prompt []int32) int {
	longest, seq := 0, -1
	for _, c := range slices.Backward(a.calls) {
		if all := len(c.Prompt) + len(c.Completion); all > longest && c.begins(prompt) {
			longest, seq = all, c.Seq
		}
	}
	return seq
}
