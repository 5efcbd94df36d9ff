// Package parity compares the engines with transformers: log-probabilities, loss,
// every gradient and greedy tokens of small models of random weights, one for each
// kind of architecture that model/hf reads.
//
// It has tests alone. What transformers computes stands in testdata, and
// golden/make.py made it; `make parity` makes it anew and runs the tests on that too.
// The weights are in no file: both sides draw them from a seed by integer arithmetic.
package parity
