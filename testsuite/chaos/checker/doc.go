// Package checker judges a run from outside. It computes what became of every
// prompt and of every sampled token out of three accounts that the product keeps
// for other purposes or not at all: the sampler's own log ([ReadGenerations]),
// Temporal's histories ([Story]) and the store, read by plain SQL and from the
// blobs' files ([Records]). [Check] holds them against each other and against
// the stream of tasks that the seed decides, which is the one thing it takes
// from the product.
//
// It does not read what the product says about itself. It shares no type with
// it either: a field that is renamed there is missed here.
//
// One may rely on this: each kind of loss, repetition or difference that it
// names has a test in which it happens.
package checker
