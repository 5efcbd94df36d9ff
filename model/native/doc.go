// Package native is the CPU engine: a transformer's forward pass, its
// hand-written backward pass, AdamW, and a decoder with continuous batching, on
// the kernels of model/native/kernel. It needs no cgo and is made for small models:
// the demo's 92,480 parameters, tests, and language models of some hundred millions.
//
// # What may be relied on
//
// Results are a function of their inputs, to the bit, within one Fingerprint:
//
//   - A row's log-probabilities and entropies, and a critic's values, do not depend
//     on the other rows, on their number or order, or on the number of threads. A
//     value depends on the tokens before it alone.
//   - A completion depends on its request and the weights alone: not on requests
//     that share its batch, nor on when they join or leave it, nor on who listens.
//   - Sampling, Score and Update (in what it hands to its objective) give the same
//     tokens the same log-probabilities at the same temperature and under the same
//     masks.
//   - A mask is exact: what it excludes has the probability 0 and no gradient, and a
//     mask that excludes nothing changes no bit.
//   - An update depends on the rows in their order, on the objective and on AdamW's
//     numbers, not on the number of threads.
//   - What rows begin with alike is computed once for all of them where a score is
//     asked for, or an update of an adapter. It changes no bit of a row's results.
//   - What the prompts of a decoder's requests begin with alike is computed once, for
//     a group and from turn to turn of a dialog. It changes no bit of a completion.
//
// They hold because each number is one chain of operations in an order fixed by
// the architecture: matrix products run with ascending inner index (see package
// kernel), sequences lie one after the other without padding between them, and
// gradients are added up over shards that are cut by tokens, never by
// threads.
//
// # How numbers are laid out
//
// A shard is the positions of some rows; where rows share what they begin with (package
// prefix), it is there once, and attention runs along the path of each row.
// R is the number of positions in a shard, D the hidden size, F the feed-forward
// size, H a head, Q all heads of a position (queries, keys, values in this order),
// O the query heads, V the vocabulary; all are padded to multiples of sixteen
// with zeros, which stay zero: their gradients are. A head of odd size is padded
// in each half, so that rotary embedding still pairs i with i + H/2. Gradients
// and moments lie as [out, in], like in checkpoints; weights that products use are kept
// once, packed in panels, which the forward and the backward product both read.
//
// # Threads and memory
//
// The threads of a small model each take shards, or units of a decoder's step, of their
// own. Those of a wide one, above 11 million numbers, share each product of one shard,
// so that its gradient and its activations exist once and its weights are read once
// for all of them. What a trainer of N numbers holds is 4·4·N bytes: weights, gradient
// and two moments; a decoder 4·N and the keys and values of its requests. Both lie outside the
// garbage-collected heap (package memory) until Close. Of finished requests a decoder
// keeps keys and values (package kvcache) in the memory that others do not need just now,
// and in 1,024 pages of 32 positions, but at most 256 MiB, beyond. Those alone stay when it
// has no request, and go after ten seconds or when it is closed.
//
// Activations of a shard come on top: all layers' for an update, one layer's for a
// score. Where a shard has more than keepNumbers of them, only each layer's input is kept,
// and the rest is computed again. Logits exist for about logitNumbers at a time. Neither
// changes a bit, and both follow from the batch and the architecture, never from the memory
// that is free.
//
// # Adapters
//
// A model with a low-rank adapter (model.LoRA) is its frozen base, of which an engine
// keeps one copy for all trainers, critics and decoders, and the adapter. A base of more
// than a few hundred thousand numbers is mapped from a file that all processes share
// (package packed), where the base says where such a file may lie. Every
// product with a weight matrix is followed by those with A and B, which are added
// to it; they are never merged. So all of the above holds for adapters too.
// Only the adapter has gradients and moments. The gradient of the output is computed
// where a loss depends on it, and that of the embedding not at all.
//
// The base's matrices may be held in bfloat16 or in eight bits (model.Precision): each is
// rounded once, when it is read, and products widen it exactly. An engine then computes
// what it would with the rounded numbers in float32, to the bit.
//
// # What it is not
//
// It computes in float32 alone, and scales rotary embedding only as model.RopeScaling
// says. Attention looks at every pair of positions, so time, but not memory, grows with
// the square of a sequence's length. A long sequence of a small model is trained by one
// thread. Bits may differ between fingerprints: between processors with and without fused
// multiply-add, for example.
package native
