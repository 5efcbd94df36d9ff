// Package verdict says in words why an attempt got its reward: how its agent ended, and
// whether what it returned is the task's answer.
//
// It grades nothing: the reward is on record. Where the run's grader compares results with
// answers, the comparison is made again to say what came of it; what other graders thought
// is not known. What it returns of others still has to be made clean and escaped.
package verdict
