// Package maze is an agent with a sparse and late reward: it walks through a small maze,
// with one model call for each move, and gets a reward only if it reaches the goal. The
// model sees only the current cell and the goal. So different walks of one task often
// visit the same states.
//
// It is the example for credit assignment: which of eight moves earned the reward? Its
// specs differ only in credit.assignment, and bench/learning compares them.
package maze
