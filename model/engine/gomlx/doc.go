// Package gomlx runs model.Architecture as GoMLX graphs on GoMLX's portable Go backend.
// It is the independent reference for tests of the hand-written engine in model/engine/native.
// It does not run on GPUs, for which there is package model/engine/torch: XLA is not among the
// backends here, and docs/architecture.md says why.
//
// It is not deterministic in the sense of model.Engine: the sizes of batches and the
// place of a sequence in its batch can change the last bits. So runs on it are
// exactly-once but not bit-equal.
//
// It is slow on CPUs, where model/engine/native is the better choice. It does not shard: a model
// and its optimizer must fit on one device.
//
// How it works. Graphs have static shapes and are compiled once for each shape, so rows
// are padded to one of a few sizes. Padding is exact. Attention is causal and padding
// comes last, so no real token sees it. Its coefficients are zero, so it adds nothing to
// a gradient. An update uses three graphs: a forward pass returns log-probabilities to
// the objective on the host; the gradient of Σ coefficient·logprob + Σ
// coefficient·entropy accumulates over groups of rows; AdamW replaces weights and moments
// in place. A critic's graphs return values in place of a policy's log-probabilities. The
// learning rate and the other numbers of an update are inputs, so a schedule needs no new
// compilation.
//
// If replies are constrained or drawn from a nucleus, the host chooses tokens, and such a
// step also returns its logits. Rows that were sampled under masks are scored with these
// masks, [B,S,V] in all, so a batch of them needs one more byte of memory for each logit.
//
// In comments, B is rows of a batch, S tokens of a row, C tokens fed to a row at
// once while decoding, T positions of a cache, D the hidden size, V the
// vocabulary, G key/value heads, R query heads for each of them, H the size of a
// head.
//
// Guarantees: GoMLX's panics are returned as errors. An update that fails or diverges
// before its last graph changes nothing. A trainer whose last graph failed returns an
// error from every later call.
package gomlx
