// Package grading opens the tasks of a source for a grader, and computes the rewards of
// the graders that run in this process. These are the graders of package tasks, and sql,
// which queries databases (package sqlmatch).
//
// It doesn't run graders that are commands, and asks no agent for its reward.
//
// Guarantees: tasks that Open returns can be graded, as long as their databases don't
// change. Nothing that an agent returns causes an error; it only lowers the reward.
package grading
