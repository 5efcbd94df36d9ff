// Package gomlx runs model.Architecture as GoMLX graphs on GoMLX's portable Go
// backend. It is the independent reference that the hand-written engine of
// model/native is checked against. GPUs are for package model/torch: XLA is not
// among the backends here, and docs/architecture.md says why.
//
// It is not deterministic in the sense of model.Engine: sizes of batches and the
// place of a sequence in its batch can move the last bits, so runs on it are
// exactly-once but not bit-equal.
//
// It is not fast on CPUs; take model/native there. It does not shard: a model
// and its optimizer fit one device.
//
// How it works. Graphs have static shapes and are compiled once per shape, so
// rows are padded up to a few sizes. Padding is exact: attention is causal and
// padding comes last, so no real token sees it, and its coefficients are zero, so
// no gradient comes from it. An update takes three graphs: a forward pass gives
// log-probabilities to the objective on the host; the gradient of
// Σ coefficient·logprob + Σ coefficient·entropy accumulates over groups of rows;
// AdamW replaces weights and moments in place. A critic's graphs give values where a
// policy's give log-probabilities. The learning rate and the other
// numbers of an update are inputs, so a schedule compiles nothing.
//
// Where replies are constrained or drawn from a nucleus, the host chooses: such a
// step gives its logits too. Rows that were sampled under masks are scored with
// them, [B,S,V] in all, so that memory for a batch of those grows by a byte for each
// logit.
//
// In comments, B is rows of a batch, S tokens of a row, C tokens fed to a row at
// once while decoding, T positions of a cache, D the hidden size, V the
// vocabulary, G key/value heads, R query heads for each of them, H the size of a
// head.
//
// Guarantees: GoMLX's panics come back as errors, an update that fails or diverges before
// its last graph changes nothing, and a trainer whose last graph failed says so at every
// later call.
package gomlx
