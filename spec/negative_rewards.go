package spec

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
)

// mayBeNegative reports whether a program, the task's own tests or the agent decide on the number
// of the reward. Only then may the number be negative.
func (g Grader) mayBeNegative() bool {
	return g.Type == GraderCommand || g.Type == GraderTasks || g.Type == GraderHarbor || g.Type == GraderAgent
}

// Least returns the smallest final reward that the grader can give.
func (g Grader) Least() float64 {
	switch {
	case !g.mayBeNegative():
		return 0
	case g.Minimum != nil:
		return max(*g.Minimum, -g.Limit)
	}
	return -g.Limit
}

// RewardsAreFractions reports whether every final reward is between 0 and 1, whatever an
// attempt does: the built-in graders give such rewards.
func (s Spec) RewardsAreFractions() bool {
	return s.Grader.Type != "" && !s.Grader.mayBeNegative() && s.Agent.FailureReward >= 0 && s.Agent.FailureReward <= 1
}

// checkMean refuses rewards that can be negative if the credit divides by their mean. The
// mean of rewards of both signs may be close to 0, and does not measure success.
func (s Spec) checkMean(f *Faults) {
	c := s.Credit
	if c.Std != credit.ByMean {
		return
	}
	negative := func(key, remedy, why string, args ...any) {
		f.add(key, remedy, `%s, and credit.std "mean" (maxrl) divides by the mean of rewards that are 0 or more`, fmt.Sprintf(why, args...))
	}
	if s.Agent.FailureReward < 0 {
		negative("agent.failure_reward", "give at least 0", "%g is negative", s.Agent.FailureReward)
	}
	if s.Grader.Least() < 0 {
		negative("grader.minimum", "give 0 if the grader never gives less", "the grader may give %g", s.Grader.Least())
	}
	for _, name := range sortedKeys(c.Rewards) {
		key := "credit.rewards." + name
		switch {
		case c.Rewards[name] < 0:
			negative(key, "give more than 0", "the weight is negative")
		case name != credit.Final:
			negative(key, `leave it out, or give another credit.std`, "agents may post any number")
		}
	}
	for _, name := range sortedKeys(c.Signals) {
		key := "credit.signals." + name
		switch {
		case c.Signals[name] < 0:
			negative(key, "give more than 0, or another credit.std", "the weight is negative")
		case name == SignalEmitted:
			negative(key, `leave it out, or give another credit.std`, "agents may post any number")
		}
	}
	if c.Overlong != nil {
		negative("credit.overlong", "leave it out, or give another credit.std", "a penalty makes rewards negative")
	}
	if c.KLInReward != nil {
		negative("credit.kl_in_reward", "leave it out and give loss.kl, or give another credit.std", "a penalty makes rewards negative")
	}
	if c.FormatPenalty > 0 {
		negative("credit.format_penalty", "leave it out, or give another credit.std", "a penalty makes rewards negative")
	}
}
