// Package credit turns rewards into advantages, and advantages into the
// derivative of a loss. It is arithmetic only: no I/O, no clock, no random
// numbers, no knowledge of engines, stores or agents. Everything is float64.
//
// Credit flows in three small stages, each a named choice of the spec:
//
//	rewards of a group ── Normalization ──▶ one advantage per trajectory
//	advantage          ── Assignment ─────▶ one advantage per call
//	advantage per call ── (uniform) ──────▶ one advantage per token
//
// A loss is a pure function from per-token log-probabilities, advantages and
// weights to a value and its derivative by each log-probability. Weights carry
// the aggregation: they are made from denominators counted over the whole batch
// before any mask, so a batch gives the same gradient however it is cut up.
//
// Notation in this package: i counts trajectories of a group, t tokens of a
// trajectory; G is the size of a group; r is the ratio of the current to the
// sampling probability of a token, or, in a decoupled loss, to the proximal one;
// A its advantage. π_θ is the current policy, μ the one that sampled, π_prox the
// proximal one: what the batch's first update started from.
package credit
