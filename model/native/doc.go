// Package native is the CPU engine: a transformer's forward pass, its
// hand-written backward pass, AdamW, and a decoder with continuous batching, on
// the kernels of model/native/kernel. It needs no cgo and is made for models of
// up to some tens of millions of parameters: the demo, tests, small agents.
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
//   - The log-probabilities of a completion are those that Score gives for the
//     same tokens at the same temperature and under the same masks, and those that
//     Update hands to its objective.
//   - A mask is exact: what it excludes has the probability 0 and no gradient, and a
//     mask that excludes nothing changes no bit.
//   - An update depends on the rows in their order, on the objective and on AdamW's
//     numbers, not on the number of threads.
//
// They hold because each number is one chain of operations in an order fixed by
// the architecture: matrix products run with ascending inner index (see package
// kernel), sequences lie one after the other without padding between them, and
// gradients are added up over shards that are cut by token counts, never by
// threads.
//
// # How numbers are laid out
//
// R is the number of positions in a shard, D the hidden size, F the feed-forward
// size, H a head, Q all heads of a position (queries, keys, values in this order),
// O the query heads, V the vocabulary; all are padded to multiples of sixteen
// with zeros, which stay zero: their gradients are. A head of odd size is padded
// in each half, so that rotary embedding still pairs i with i + H/2. Weights are
// kept as [out, in], like in checkpoints, plus packed copies for products.
//
// # What it is not
//
// There is no bfloat16, no quantization, no adapter, no rope scaling. Attention
// looks at every pair of positions, so time, but not memory, grows with the square
// of a sequence's length. A long sequence is trained by one thread. Bits may differ between fingerprints: between
// processors with and without fused multiply-add, for example.
package native
