// Package evaluation says what evaluations on record show: how often a task is solved
// by one of k samples or by all of k, and whether one evaluation is better than another
// on the same tasks, with intervals and a p-value.
//
// It samples nothing and decides nothing: package workflows runs evaluations, package
// model decides promotions. Intervals come from resampled tasks under a fixed seed, so
// that the same record always gives the same numbers. Everything but Load is arithmetic.
package evaluation
