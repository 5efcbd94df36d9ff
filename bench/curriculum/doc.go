// Command curriculum counts the rollouts that a run needs until it reaches a goal, with
// and without a curriculum of type band that chooses each step's tasks, for several
// seeds. The training tasks are problems for the calculator. Most of them can't be
// solved, because their answers are wrong. The goal is a mean reward on a gate split of
// problems that can all be solved.
//
//	go run ./bench/curriculum -seeds 3
package main
