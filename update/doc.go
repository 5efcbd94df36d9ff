// Package update makes updates of a policy or a critic from a batch.
//
// # From rewards to weights
//
//	groups of attempts, with rewards  ── [NewBatch], by package credit/assign ──▶ model.Batch
//	batch, passes, minibatches        ── minibatches ──────────────────────────▶ which rows an update sees
//	spec.Loss                         ── spec.Loss.Objective, of package credit ▶ a gradient for each token
//	spec.Optimizer, step              ── adamW ────────────────────────────────▶ the learning rate
//	rows, gradients, learning rate    ── model.Trainer.Update, one an update ───▶ weights
//	weights, moments                  ── package model/checkpoint ─────────────▶ version t, under its digest
//
// A [Maker] does all but the first: [Maker.FirstPolicy] and [Maker.FirstCritic] make
// version 0, [Maker.Policy] and [Maker.Critic] the version after a step.
// [Maker.ScoreCritic] and [Maker.ScoreReference] come before the batch, where its
// credit needs a critic's values or the log-probabilities of version 0.
//
// The formulas of losses and advantages, with the papers that they are from, are in
// package credit. Here are only: AdamW (Loshchilov and Hutter, 2019,
// arXiv:1711.05101), which the engine computes, with a linear or cosine schedule
// (Loshchilov and Hutter, 2017, arXiv:1608.03983) and a linear warm-up before the
// updates on demonstrations; and the warm start itself, cross-entropy on the tokens
// of the demonstrated replies.
//
// # What it promises
//
//   - A group is never divided between two minibatches, since its advantages are about
//     one another. Which groups an update sees depends on seed, step and pass only.
//   - Equal batches and parents make equal bits on a deterministic engine: sums run in
//     the order of rows, and nothing depends on the clock.
//   - While updates towards a version go on, their state is saved as often as costs
//     little, under a digest of everything that decides them, its basis. A Maker that
//     finds a state with the same basis continues from it, with the same result to the
//     bit. A state that can't be read costs time only.
//   - Blobs are written before the row that names them. The first row of a version
//     counts; a later executor checks that it made the same weights.
//   - A missing or damaged file is an error that passes when the file is restored. What
//     a person has to change is an [InvalidError].
//
// The package knows neither Temporal nor the rows of a database: what it stores goes
// through [Versions] and a store of blobs.
package update
