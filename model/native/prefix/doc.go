// Package prefix finds what rows of tokens have in common at their beginnings, and
// places their positions in shards so that a common beginning lies there once: a
// causal model computes the same for it in each of the rows.
//
// It knows tokens and positions alone, neither models nor numbers. What it returns
// follows from the tokens and from the limit that it is given.
package prefix
