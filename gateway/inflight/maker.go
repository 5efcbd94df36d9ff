package inflight

import (
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/model"
)

// Config is the configuration of a Maker. All of it is required.
type Config struct {
	conversation.Config
	Sampler model.Sampler
	// Now is the clock of records.
	Now func() time.Time
}

// Maker makes calls: it samples, records, and lets requests wait for them.
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
