// Package credit turns rewards into advantages, and advantages into the derivative of a
// loss. It only computes: it does no I/O, uses no clock and no random numbers, and knows
// nothing of engines, stores or agents. Everything is float64.
//
// Credit is computed in small stages. Each stage is a choice that the spec names, and all
// of them together are one [Plan]:
//
//	log-probabilities    ── [KL], if asked for ────────▶ what tokens lose for leaving the reference
//	named rewards        ── weights, [Normalization] ──▶ an advantage per trajectory
//	that, calls' rewards ── [Assignment] ──────────────▶ an advantage per call
//	that, a critic       ── [Spread] ──────────────────▶ an advantage per trained token
//	those of a batch     ── whitening, if asked for ───▶ mean 0, deviation 1
//
// The example Grpo goes through all of them, from rewards to the gradient of a loss.
//
// A [Trajectory] is all that credit reads of an attempt. The package computes only one
// kind of estimate itself: [FitValues] learns from the run's own calls to predict the
// rewards of attempts. A critic's values and a judge's scores are inputs. Statistics are
// over trajectories, each with equal weight, and not over calls; only whitening and the
// comparison of equal states count calls or their tokens. Sums run in the order of the
// batch, so equal batches get equal bits.
//
// A loss is a pure function. From per-token log-probabilities, advantages and weights it
// computes a value and its derivative by each log-probability. The weights contain the
// aggregation: they are made from denominators that are counted over the whole batch, or
// the minibatch of an update, before any mask or rejection. So the gradient is the same
// however the batch or minibatch is cut into micro-batches. An [Objective] is a loss put
// together from a [Surrogate], a [Correction], a [KL] and a bonus for entropy. Each part
// equals its formula to 1e-9.
//
// What people said of replies needs no advantages. [Supervised] is the loss of a text that
// a person wrote instead, and [Preference] that of a pair of replies of which somebody
// chose one.
//
// Papers define some quantities for a sequence, or a response: the ratio of GSPO, and the
// weights and rejections that concern more than one token. In this package they are
// defined for a call, which has one completion. A row may hold several calls, one after
// the other, because each prompt begins with the tokens of the call before it. That saves
// tokens and must not change what is learned. Ratios of calls, and so the gradient, are
// the same however calls are merged into rows. Ratios of rows would depend on which
// prompts happen to extend each other. Only aggregation is over trajectories, whose
// lengths no merging changes.
//
// Notation in this package: i counts trajectories of a group, t tokens of a trajectory; G
// is the size of a group. r is the ratio of the current to the sampling probability of a
// token or, with a correction, of the current to the proximal probability. ρ is the ratio
// of the proximal to the sampling probability. A is an advantage. sg[x] is x, but a
// constant for derivatives. π_θ is the current policy, μ the one that sampled, π_prox the
// proximal one, from which the batch's first update started, and π_ref the reference.
package credit
