// Package checker checks a run from outside. It finds out what happened to every prompt
// and every sampled token, from three sources: the sampler's own log ([ReadGenerations]),
// Temporal's histories ([History]), and the store, which it reads with plain SQL and from
// the blobs' files ([Records]). [Check] compares them with each other and with the stream
// of tasks that the seed determines. The function for that stream is taken from the
// product.
//
// It does not read the product's reports about itself. It does not share its types
// either, so a field that is renamed in the product is missing here.
//
// Guarantee: for each kind of loss, repetition or difference that Check can find, there
// is a test in which it happens.
package checker
