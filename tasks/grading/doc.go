// Package grading opens the tasks of a source for a grader and gives the rewards of
// the graders that decide in this process: those of package tasks, and sql, which
// asks databases (package sqlmatch).
//
// It doesn't run graders that are commands and asks no agent for its reward.
//
// Guarantees: tasks that Open returns can be graded, as far as their databases stay as
// they are; and what an agent returned never makes an error, only a lower reward.
package grading
