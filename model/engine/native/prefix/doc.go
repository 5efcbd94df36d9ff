// Package prefix finds the prefixes that rows of tokens have in common, and places their
// positions in shards so that a common prefix lies there once: a causal model computes
// the same numbers for it in each of the rows.
//
// It handles only tokens and positions, neither models nor numbers. Its results depend
// only on the tokens and on the given limit.
package prefix
