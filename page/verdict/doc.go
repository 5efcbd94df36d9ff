// Package verdict says in words why an attempt got its reward: how its agent ended, and
// whether its result is the task's answer.
//
// It does not grade: the reward is recorded. If the run's grader compares results with
// answers, this package repeats the comparison to describe it. The grader of SQL said why
// when it ran the queries, and that is on record. How other graders decided is not known.
// The texts contain parts that agents wrote, which still have to be cleaned and escaped.
package verdict
