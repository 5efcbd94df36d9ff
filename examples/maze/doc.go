// Package maze is an agent whose reward is sparse and late: it walks through a
// small maze, one model call a move, and only reaching the goal counts. The model
// sees where it is and where it has to go, nothing else, so different walks of one
// task come to the same states again and again.
//
// It is the example for credit: which of eight moves earned the reward? Its specs
// differ in credit.assignment alone, and bench/credit compares them.
package maze
