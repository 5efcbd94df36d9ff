// Package evaluation analyses evaluations on record: how often a task is solved by one of
// k samples or by all of k, and whether one evaluation is better than another on the same
// tasks, with intervals and a p-value.
//
// It samples nothing and decides nothing: package workflows runs evaluations, and package
// model decides about promotions. Intervals come from resampling tasks with a fixed seed,
// so that the same record always gives the same numbers. Everything but reading the
// record is arithmetic.
package evaluation
