// Package credit turns rewards into advantages, and advantages into the
// derivative of a loss. It is arithmetic only: no I/O, no clock, no random
// numbers, no knowledge of engines, stores or agents. Everything is float64.
//
// Credit flows in small stages, each a named choice of the spec, all of them one
// [Plan]:
//
//	log-probabilities    ── [KL], if asked for ────────▶ what tokens lose for leaving the reference
//	named rewards        ── weights, [Normalization] ──▶ an advantage per trajectory
//	that, calls' rewards ── [Assignment] ──────────────▶ an advantage per call
//	that, a critic       ── [Spread] ──────────────────▶ an advantage per trained token
//	those of a batch     ── whitening, if asked for ───▶ mean 0, deviation 1
//
// The example Grpo goes through all of them, from rewards to the gradient of a loss.
//
// A [Trajectory] is everything that credit reads of an attempt. Estimates come from
// elsewhere: a critic's values, a judge's scores, or [FitValues], which learns from the
// run's own calls to predict the rewards of attempts. Statistics are over trajectories,
// each with equal weight, and not over calls; only whitening and the comparison of equal
// states count calls or their tokens. Sums run in the order of the batch, so equal
// batches get equal bits.
//
// A loss is a pure function from per-token log-probabilities, advantages and
// weights to a value and its derivative by each log-probability. Weights carry
// the aggregation: they are made from denominators counted over the whole batch, or
// the minibatch of an update, before any mask or rejection, so either gives the same
// gradient however it is cut into micro-batches. An [Objective] is a loss put
// together from a [Surrogate], a [Correction], a [KL] and a bonus for entropy, each
// equal to its formula to 1e-9.
//
// What papers define for a sequence, or a response (the ratio of GSPO, the weights
// and rejections that are about more than one token), is here about a call: one
// completion. A row may hold several calls, laid end to end because each prompt
// begins with the tokens of the call before it; that saves tokens and must not
// change what is learned. Ratios of calls are the same however calls are merged into
// rows, and so is the gradient; ratios of rows would depend on which prompts happen
// to extend each other. Aggregation alone is about trajectories, whose lengths no
// merging changes.
//
// Notation in this package: i counts trajectories of a group, t tokens of a trajectory; G
// is the size of a group; r is the ratio of the current to the sampling probability of a
// token, or, with a correction, of the current to the proximal probability; ρ is the
// ratio of the proximal to the sampling probability; A an advantage; sg[x] is x, but a
// constant for derivatives. π_θ is the current policy, μ the one that sampled, π_prox the
// proximal one, from which the batch's first update started; π_ref the reference.
package credit
