// Package agents tells what each named agent of a run contributed to its evaluations: the
// reward of what the agent said by itself, and how attempts ended. It is about the first
// evaluation of each split, and about the newest and the promoted version.
//
// A reward may grow because a policy says better things, or because an agent delivers more
// of what the policy said before. The two look alike in the mean of an evaluation. So
// replies are graded again, by the run's own grader, as if each were the result of its
// attempt: as it is written, and without the prose around it.
//
// The package runs no agent, no model and no program: with graders that need more than a
// text it grades nothing and says so. It writes nothing. What can't be graded again, since
// a database is not there, is named and left out.
package agents
