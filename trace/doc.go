// Package trace holds the vocabulary of what happened inside one attempt: the address of
// an attempt, the model calls that it made, its rewards and events, the trajectory these
// add up to, and the sequences that a trajectory is trained as. Package record holds
// what is kept of a run beside its attempts.
//
// It is a leaf: plain values and pure functions, no storage, no network and no
// clock. Tokens are ids of the policy's vocabulary; log-probabilities are
// natural logarithms under the distribution that sampled them.
//
// One may rely on two things. An [Address] has exactly one textual form, which
// is at once a URL path, a key in the store and the name a person reads. A
// merged [Sequence] carries each sampled token exactly once, so a gradient over
// sequences equals the gradient over the calls they were merged from.
package trace
