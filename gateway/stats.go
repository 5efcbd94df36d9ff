package gateway

import "sync/atomic"

// Stats counts what a gateway did since it was made.
type Stats struct {
	// Sampled counts replies that the sampler gave to attempts, Unrecorded those of
	// them that this gateway could not commit: they were refused, or another gateway
	// had committed the call meanwhile. What a gateway sampled when it was killed is
	// in the sampler's own log only.
	Sampled, Unrecorded int64
	// Replayed counts calls answered from the record of an earlier attempt.
	Replayed int64
	// Rejoined counts requests answered with a call that another request began:
	// retries.
	Rejoined int64
	// Drifted counts calls recorded whose dialog continues a recorded call although a
	// full rendering of it would not begin with that call's tokens, see
	// trace.Call.Drift.
	Drifted int64
}

type counters struct{ sampled, unrecorded, replayed, rejoined, drifted atomic.Int64 }

// Stats returns the counts of this moment.
func (g *Gateway) Stats() Stats {
	return Stats{
		Sampled: g.count.sampled.Load(), Unrecorded: g.count.unrecorded.Load(),
		Replayed: g.count.replayed.Load(), Rejoined: g.count.rejoined.Load(),
		Drifted: g.count.drifted.Load(),
	}
}
