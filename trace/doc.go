// Package trace holds the vocabulary for one attempt: its address, the model calls that
// it made, its rewards and events, the trajectory that these form, and the sequences as
// which a trajectory is trained. Package record holds the other records of a run.
//
// It is a leaf: plain values and pure functions, no storage, no network and no
// clock. Tokens are ids of the policy's vocabulary; log-probabilities are
// natural logarithms under the distribution that sampled them.
//
// Two guarantees: an [Address] has exactly one textual form, which is at once a URL path,
// a key in the store and the name that people read. A merged [Sequence] carries each
// sampled token exactly once, so a gradient over sequences equals the gradient over the
// calls they were merged from.
package trace
