// Package native is the CPU engine: a transformer's forward pass, its hand-written
// backward pass, AdamW, and a decoder with continuous batching, on the kernels of
// model/engine/native/kernel. It needs no cgo and is made for small models: the demo's 92,480
// parameters, tests, and language models of some hundred million parameters.
//
// # What may be relied on
//
// Results are a function of their inputs, to the bit, within one Fingerprint:
//
//   - A row's log-probabilities and entropies, and a critic's values, do not depend
//     on the other rows, on their number or order, or on the number of threads. A
//     value depends on the tokens before it alone.
//   - A completion depends only on its request and the weights: not on requests that
//     share its batch, nor on when they join or leave it, nor on whether its tokens are
//     emitted as they are sampled.
//   - Sampling, Score and Update (in what it hands to its objective) give the same
//     tokens the same log-probabilities at the same temperature and under the same
//     masks.
//   - A mask is exact: what it excludes has the probability 0 and no gradient, and a
//     mask that excludes nothing changes no bit.
//   - An update depends on the rows in their order, on the objective and on AdamW's
//     numbers, not on the number of threads.
//   - A prefix that rows have in common is computed once for all of them, in Score and in
//     an update of an adapter. This changes no bit of a row's results.
//   - A prefix that prompts of a decoder's requests have in common is computed once, for
//     a group and from turn to turn of a dialog. This changes no bit of a completion.
//
// These guarantees hold because each number is one chain of operations in an order fixed
// by the architecture: matrix products run with ascending inner index (see package
// kernel), sequences lie one after the other without padding between them, and gradients
// are added up over shards that are cut by tokens, never by threads.
//
// # How numbers are laid out
//
// A shard holds the positions of some rows. A prefix that rows share (package prefix) is
// held once, and attention runs along the path of each row. R is the number of positions
// in a shard, D the hidden size, F the feed-forward size, H the size of a head, Q the
// size of all heads of a position (queries, keys, values in this order), O that of the
// query heads, V the vocabulary. All are padded to multiples of sixteen with zeros, which
// stay zero because their gradients are zero. A head of odd size is padded in each half,
// so that rotary embedding still pairs i with i + H/2. Gradients and moments are laid out
// as [out, in], as in checkpoints. Weights that products use are kept once, packed in
// panels, which the forward and the backward product both read.
//
// # Threads and memory
//
// In a small model each thread takes its own shards, or its own units of a decoder's
// step. In a wide model, one of more than 11 million numbers, all threads share each
// product of one shard, so that the shard's gradient and activations exist once and the
// weights are read once for all threads. A trainer of a wide model of N numbers holds
// 4·4·N bytes: weights, gradient and two moments. In a small model there may be up to 16
// partial gradients. A decoder holds 4·N bytes and the keys and values of its requests.
// Both lie outside the garbage-collected heap (package memory) until Close.
//
// A decoder also keeps keys and values of finished requests (package kvcache): in the
// memory that running requests do not need at the moment, and in up to 1,024 pages of 32
// positions, at most 256 MiB, in addition. Only these pages stay when it has no request;
// it frees them after ten seconds or when it is closed.
//
// The activations of a shard need memory in addition: those of all layers for an update,
// those of one layer for a score. If a shard has more than keepNumbers of them, only the
// input of each layer is kept, and the rest is computed again. About logitNumbers logits
// exist at a time. Neither limit changes a bit, and both follow from the batch and the
// architecture, never from the memory that is free.
//
// # Adapters
//
// A model with a low-rank adapter (model.LoRA) consists of the adapter and its frozen
// base, of which an engine keeps one copy for all trainers, critics and decoders. A base
// of more than a few hundred thousand numbers is mapped from a file that all processes
// share (package packed), if the base names a path for such a file. Every product with a
// weight matrix is followed by the products with A and B, which are added to it; A and B
// are never merged into the base. So everything above holds for adapters too. Only the
// adapter has gradients and moments. The gradient of the output is computed where a loss
// depends on it, and the gradient of the embedding is never computed.
//
// The base's matrices may be held in bfloat16 or in eight bits (model.Precision). Each
// number is rounded once, when it is read, and products widen it exactly. So an engine
// computes, to the bit, what it would compute with the rounded numbers in float32.
//
// # What it is not
//
// It computes only in float32, and scales rotary embedding only as model.RopeScaling
// says. Attention looks at every pair of positions, so time, but not memory, grows with
// the square of a sequence's length. A long sequence of a small model is trained by one
// thread. Bits may differ between fingerprints, for example between processors with and
// without fused multiply-add.
package native
