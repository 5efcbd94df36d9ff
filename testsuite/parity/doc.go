// Package parity compares the engines with transformers: log-probabilities, loss, every
// gradient and greedy tokens of small models with random weights, one for each kind of
// architecture that model/files/hf reads.
//
// testsuite/parity/dpo has the results of TRL for pairs of completions, which a test of
// package update reads.
//
// It only has tests. golden/make.py wrote the results of transformers to testdata. `make
// parity` computes them again and runs the tests on the new results too. No file holds
// the weights: both sides draw them from a seed with integer arithmetic.
package parity
