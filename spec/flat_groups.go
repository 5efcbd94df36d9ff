package spec

import "github.com/fulgurite/fulgurite/credit"

// teachesFlat returns the reason why a group of equal attempts teaches something under c,
// or why this can't be known before the groups of a step are chosen. It returns "" if such
// a group teaches nothing.
func (c Credit) teachesFlat() string {
	switch {
	case c.UsesCritic():
		return "a critic is what rewards are compared with, so a group of equal rewards teaches too"
	case c.Assignment == credit.ValueDifference:
		return "an estimate is what rewards are compared with, so a group of equal rewards teaches too"
	case c.Assignment == credit.Judge:
		return "a judge tells equal attempts apart, and is asked once the groups of a step are chosen"
	case c.KLInReward != nil:
		return "with credit.kl_in_reward the rewards of two attempts are never equal"
	case c.Mean != credit.Group:
		return "rewards are not compared with the mean of their group, so a group of equal rewards teaches too"
	case c.Whiten == credit.Batch:
		return "credit.whiten takes the mean of the whole batch away, so a group of equal rewards teaches too"
	}
	return ""
}

// FlatByCredit reports whether the credit of a group has to be computed to find out
// whether the group teaches nothing. Otherwise it teaches nothing if its final rewards are
// equal. c must have its defaults.
func (c Credit) FlatByCredit() bool {
	if c.teachesFlat() != "" {
		return false
	}
	_, final := c.Rewards[credit.Final]
	alone := len(c.Rewards) == 0 || final && len(c.Rewards) == 1
	return !alone || len(c.Signals) > 0 || c.Overlong != nil || c.FormatPenalty > 0 || c.Truncated == TruncatedMask ||
		c.TrainAgents != "" || c.PerAgent || c.Assignment == credit.GiGPO
}

// checkDynamicSampling refuses to replace flat groups if there can be none under this
// credit.
func (s Spec) checkDynamicSampling(f *Faults) {
	if why := s.Credit.teachesFlat(); s.Training.DynamicSampling > 0 && why != "" {
		f.unused("training.dynamic_sampling", s.Training.SamplesPerTask > 1, why)
	}
}
