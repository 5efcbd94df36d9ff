// Package update makes updates of a policy or a critic from a batch.
//
// # From rewards to weights
//
//	groups of attempts, with rewards  ── [NewBatch], by package credit/assign ──▶ model.Batch
//	batch, passes, minibatches        ── minibatches ──────────────────────────▶ which rows an update sees
//	spec.Loss                         ── spec.Loss.Objective, of package credit ▶ a gradient for each token
//	spec.Optimizer, step              ── adamW ────────────────────────────────▶ the learning rate
//	rows, gradients, learning rate    ── model.Trainer.Update, one an update ───▶ weights
//	weights, moments                  ── package model/files/checkpoint ─────────────▶ version t, under its digest
//
// A [Maker] does all but the first: [Maker.FirstPolicy] and [Maker.FirstCritic] make
// version 0, [Maker.Policy] and [Maker.Critic] the version after a step.
// [Maker.ScoreCritic] and [Maker.ScoreReference] are called before the batch is made, if
// its credit needs a critic's values or the log-probabilities under version 0.
//
// A batch can also hold texts that people corrected, or pairs of replies of which they
// chose one; a caller then makes the model.Batch itself, of model.SupervisedRow and
// model.PreferenceRows, and [Maker.Policy] learns from it. The derivative of a pair depends
// on both of its rows, so an update scores its pairs before it calls the trainer's Update.
//
// The formulas of losses and advantages, and the papers that define them, are in package
// credit. This package has only the optimizer and the warm start. The optimizer is AdamW
// (Loshchilov and Hutter, 2019, arXiv:1711.05101), which the engine computes, with a
// linear or cosine schedule (Loshchilov and Hutter, 2017, arXiv:1608.03983), and a linear
// warm-up before the updates on demonstrations. The warm start is cross-entropy on the
// tokens of the demonstrated replies.
//
// # What it promises
//
//   - A group is never divided between two minibatches, because its advantages are
//     relative to each other. So the rows of a pair, which are of one group, are not either. Which groups an update sees depends on seed, step and
//     pass only.
//   - Equal batches and parents make equal bits on a deterministic engine: sums run in
//     the order of rows, and nothing depends on the clock.
//   - During the updates towards a version, their state is saved as often as costs
//     little. It is saved under a digest of everything that decides the updates, the
//     basis. A Maker that finds a state with the same basis continues from it, with the
//     same result to the bit. If a state can't be read, only time is lost.
//   - Blobs are written before the row that names them. The first row of a version
//     counts; an executor that comes later checks that it made the same weights.
//   - A missing or damaged file is an error that disappears when the file is restored.
//     If a person has to change something, the error is an [InvalidError].
//
// The package knows neither Temporal nor the rows of a database: it stores everything
// through [Versions] and a store of blobs.
package update
