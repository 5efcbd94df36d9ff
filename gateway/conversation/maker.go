package conversation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// Journal records attempts and their calls. Its errors wrap trace.ErrNotFound,
// trace.ErrFenced and trace.ErrConflict; any other is a fault of ours.
type Journal interface {
	Attempt(ctx context.Context, address trace.Address) (trace.Attempt, error)
	// AppendCall returns once the call is committed.
	AppendCall(ctx context.Context, call *trace.Exchange) error
	// Exchanges lists an attempt's calls by Seq.
	Exchanges(ctx context.Context, address trace.Address) ([]trace.Exchange, error)
	// EarlierExchanges lists the calls that attempts before address sampled at the same
	// rollout, attempt after attempt, each by Seq.
	EarlierExchanges(ctx context.Context, address trace.Address) ([]trace.Exchange, error)
}

// Config is the configuration of a Maker. All of it is required.
type Config struct {
	Journal Journal
	Sampler model.Sampler
	// Codecs finds a codec by its name in a spec.
	Codecs func(name string) (dialog.Codec, error)
	// NoReplay ignores what earlier attempts recorded.
	NoReplay bool
	// Now is the clock of records.
	Now func() time.Time
	Log *zap.Logger
}

// Maker opens conversations, and makes calls outside of them.
type Maker struct {
	config Config
	count  counters
}

// New returns a maker of calls.
func New(config Config) *Maker { return &Maker{config: config} }

// Stats counts the calls of a gateway since it was made.
type Stats struct {
	// Sampled counts replies that the sampler gave to attempts. Unrecorded counts those
	// of them that this gateway could not commit: they were refused, or another gateway
	// had committed the call meanwhile. Only the sampler's own log has the calls that a
	// gateway was sampling when it was killed.
	Sampled, Unrecorded int64
	// Replayed counts calls answered from the record of an earlier attempt.
	Replayed int64
	// Rejoined counts retries: requests answered with a call that another request began.
	Rejoined int64
	// Drifted counts recorded calls whose dialog continues a recorded call although a
	// full rendering of it would not begin with that call's tokens, see trace.Call.Drift.
	Drifted int64
}

type counters struct{ sampled, unrecorded, replayed, rejoined, drifted atomic.Int64 }

// Stats returns the current counts.
func (m *Maker) Stats() Stats {
	return Stats{
		Sampled: m.count.sampled.Load(), Unrecorded: m.count.unrecorded.Load(),
		Replayed: m.count.replayed.Load(), Rejoined: m.count.rejoined.Load(),
		Drifted: m.count.drifted.Load(),
	}
}

// ErrWrongKey refuses a key that does not belong to the attempt.
var ErrWrongKey = errors.New("the key is not that of this attempt")

// Fault is an error of ours: the same request may be sent again, and the attempt must
// not be blamed.
type Fault struct{ Cause error }

func (f *Fault) Error() string { return f.Cause.Error() }

func (f *Fault) Unwrap() error { return f.Cause }

// LimitError refuses a call beyond the limits in the attempt's terms: on calls, or on
// tokens if Calls is 0.
type LimitError struct{ Calls, Tokens int }

func (e *LimitError) Error() string {
	if e.Calls > 0 {
		return fmt.Sprintf("the attempt has made all of its %s", readable.Count(e.Calls, "call"))
	}
	return fmt.Sprintf("the attempt has sampled all of its %s", readable.Count(e.Tokens, "token"))
}

// FormError refuses a form to which the codec can't hold a reply.
type FormError struct {
	Field string // the field of the request that asks for the form
	Err   error  // wraps dialog.ErrForm
}

func (e *FormError) Error() string { return e.Field + ": " + e.Err.Error() }

func (e *FormError) Unwrap() error { return e.Err }
