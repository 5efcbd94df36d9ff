// Package checker checks a run from outside. It computes what became of every prompt
// and of every sampled token from three sources: the sampler's own log
// ([ReadGenerations]), Temporal's histories ([History]) and the store, read by plain
// SQL and from the blobs' files ([Records]). [Check] compares them with each other and
// with the stream of tasks that the seed decides, the one thing that it takes from the
// product.
//
// It does not read what the product says about itself. It shares no type with
// it either: a field that is renamed there is missed here.
//
// Guarantees: each kind of loss, repetition or difference that it names has a test in
// which it happens.
package checker
