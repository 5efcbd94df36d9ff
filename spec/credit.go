package spec

import (
	"cmp"
	"fmt"
	"math"
	"regexp"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Credit says how rewards become advantages.
type Credit struct {
	// Rewards holds the weights of an attempt's named rewards, by name. "final" is the
	// reward that the grader gives. Absent means that "final" alone counts, with weight 1.
	Rewards map[string]float64 `json:"rewards,omitempty"`
	// Combine says what happens with several rewards: "sum" adds them before they are
	// compared with others, "separate" compares each by itself and adds the results
	// (GDPO).
	Combine string `json:"combine,omitempty"`
	// Signals holds the weights of what a call earns by itself, by name: "tool_error",
	// "exception", "parse_failure", "repeated_call", "recovered", and "emitted", a factor
	// for rewards that the agent gave the call. Absent means that calls earn nothing by
	// themselves.
	Signals map[string]float64 `json:"signals,omitempty"`
	// Overlong takes a penalty from the reward of attempts that come close to the largest
	// allowed number of sampled tokens (DAPO). Absent means no penalty.
	Overlong *Overlong `json:"overlong,omitempty"`
	// FormatPenalty is subtracted from the reward of an attempt with a reply that could
	// not be parsed. Absent or 0 means no penalty.
	FormatPenalty float64 `json:"format_penalty,omitempty"`
	// Truncated says what a reply that a limit of tokens cut off is good for in training.
	// "train" trains it like any other. "mask" leaves its tokens out of the loss; its
	// attempt still counts among those that others are compared with. "fail" lets an
	// attempt with such a reply fail, with agent.failure_reward. Absent means "train".
	Truncated string `json:"truncated,omitempty"`
	// KLInReward subtracts from the reward of every trained token an estimate of how far
	// the policy that sampled it was from version 0, times a weight, as PPO, RLOO and
	// REINFORCE++ do. Absent means no penalty.
	KLInReward *KL `json:"kl_in_reward,omitempty"`
	// TrainAgents is a regular expression (RE2). Only the calls of agents whose complete
	// name it matches are trained. Absent means that the calls of all agents are trained.
	TrainAgents string `json:"train_agents,omitempty"`
	// Assignment says how the calls of a trajectory get their advantages. "identical":
	// each gets the trajectory's. "discounted": less of it, the earlier the call.
	// "last_call": the last call gets all of it. "gigpo": the trajectory's, plus the
	// step's among steps from equal states. "turn_gae": by a critic, call by call.
	// "value_difference": by how much the call changed the estimated success. "judge": the
	// trajectory's, plus a language model's score of the call.
	Assignment credit.Assignment `json:"assignment,omitempty"`
	// Discount is the factor for each call of "discounted", "gigpo" and "turn_gae", or for
	// each token with credit.tokens "gae". Absent means 0.95, with "turn_gae" 0.99, with
	// "gae" 1.
	Discount float64 `json:"discount,omitempty"`
	// Lambda is λ of generalized advantage estimation. Only with credit.assignment
	// "turn_gae" or credit.tokens "gae".
	Lambda float64 `json:"lambda,omitempty"`
	// StepWeight is the weight in "gigpo" of the comparison at equal states, next to the
	// comparison of complete trajectories. Only with credit.assignment "gigpo".
	StepWeight float64 `json:"step_weight,omitempty"`
	// Tokens says how the tokens of a call get their advantages: "uniform" gives each
	// token the call's, "gae" gives each token its own, by a critic (PPO).
	Tokens credit.Spread `json:"tokens,omitempty"`
	// Judge is a language model that scores calls. Only with credit.assignment "judge",
	// which needs it.
	Judge *Judge `json:"judge,omitempty"`
	// Mean is what rewards are compared with: the mean of the "group" or of the "batch",
	// "running" for the running mean of the steps before (RAE), or "none". Absent means
	// "none" with a critic or "value_difference", else "group".
	Mean credit.Level `json:"mean,omitempty"`
	// Std is what the difference from the mean is divided by: the deviation of the "group"
	// or of the "batch", "mean" for the mean of the group itself (MaxRL), or "none".
	// Absent means "none" with a critic, "value_difference" or credit.mean "running", else
	// "group".
	Std credit.Level `json:"std,omitempty"`
	// LeaveOneOut leaves a sample out of the mean that it is compared with (RLOO). Only
	// with credit.mean "group".
	LeaveOneOut bool `json:"leave_one_out,omitempty"`
	// PerAgent compares the calls of an agent only with calls of the same agent.
	PerAgent bool `json:"per_agent,omitempty"`
	// Whiten is "batch" to bring the advantages of all trained tokens of a step to mean 0
	// and deviation 1, or "none" to leave them. Absent means "batch" with a critic, else
	// "none".
	Whiten credit.Level `json:"whiten,omitempty"`
}

// Overlong is a soft limit on an attempt's sampled tokens.
type Overlong struct {
	// Tokens is the number of sampled tokens of an attempt from which on the complete
	// penalty is subtracted from its reward.
	Tokens int `json:"tokens"`
	// Buffer is the number of tokens over which the penalty rises from 0 before
	// credit.overlong.tokens is reached. At most credit.overlong.tokens.
	Buffer int `json:"buffer"`
	// Penalty is the complete penalty, which is subtracted from the reward.
	Penalty float64 `json:"penalty,omitempty"`
}

// Judge is a language model that scores the calls of an attempt. It has an API like
// OpenAI's.
type Judge struct {
	// URL is the address of the judge's API, which is like OpenAI's, with its /v1.
	URL string `json:"url"`
	// Model is the name of the model at the judge's API.
	Model string `json:"model"`
	// Key is the name of the environment variable that holds the API key. The process that
	// asks the judge reads it.
	Key string `json:"key,omitempty"`
	// Rubric says in words what makes a call good.
	Rubric string `json:"rubric,omitempty"`
	// Requests is the largest number of requests to the judge in one step.
	Requests int `json:"requests,omitempty"`
	// Seconds is the longest time, in seconds, that one answer may take.
	Seconds float64 `json:"seconds,omitempty"`
}

// Critic is a model that estimates returns.
type Critic struct {
	// LearningRate is the learning rate of the critic's AdamW. It is constant.
	LearningRate float64 `json:"learning_rate,omitempty"`
	// Passes is the number of passes over each step's batch.
	Passes int `json:"passes,omitempty"`
	// Clip is how far an update may move an estimate before a further move stops counting.
	// 0, the default, does not clip.
	Clip float64 `json:"clip,omitempty"`
}

// Signals that a call can earn by itself.
const (
	SignalToolError    = "tool_error"
	SignalException    = "exception"
	SignalParseFailure = "parse_failure"
	SignalRepeatedCall = "repeated_call"
	SignalRecovered    = "recovered"
	SignalEmitted      = "emitted"
)

// Signals returns the names of all signals.
func Signals() []string {
	return []string{SignalToolError, SignalException, SignalParseFailure, SignalRepeatedCall, SignalRecovered, SignalEmitted}
}

// UsesCritic reports whether the credit needs a critic.
func (c Credit) UsesCritic() bool { return c.Assignment == credit.TurnGAE || c.Tokens == credit.GAE }

// estimated reports whether an estimate of the return is the baseline. There is then no
// other baseline.
func (c Credit) estimated() bool { return c.UsesCritic() || c.Assignment == credit.ValueDifference }

// discounts reports whether Discount has an effect.
func (c Credit) discounts() bool {
	return c.UsesCritic() || c.Assignment == credit.Discounted || c.Assignment == credit.GiGPO
}

// Plan returns the credit in the terms of package credit.
func (c Credit) Plan() credit.Plan {
	p := credit.Plan{
		Normalization: credit.Normalization{Mean: c.Mean, Std: c.Std, LeaveOneOut: c.LeaveOneOut},
		Assignment:    c.Assignment,
		Tokens:        c.Tokens,
		Discount:      c.Discount,
		Lambda:        c.Lambda,
		StepWeight:    c.StepWeight,
		PerAgent:      c.PerAgent,
		Whiten:        c.Whiten == credit.Batch,
		Rewards:       c.Rewards,
		Separate:      c.Combine == CombineSeparate,
	}
	if c.KLInReward != nil {
		p.KL = credit.KL(*c.KLInReward)
	}
	return p
}

func (c Credit) withDefaults() Credit {
	c.Combine = cmp.Or(c.Combine, CombineSum)
	c.Truncated = cmp.Or(c.Truncated, TruncatedTrain)
	c.Assignment = cmp.Or(c.Assignment, credit.Identical)
	c.Tokens = cmp.Or(c.Tokens, credit.Uniform)
	level, whiten := credit.Group, credit.None
	switch {
	case c.Tokens == credit.GAE:
		c.Discount = cmp.Or(c.Discount, 1)
		level, whiten = credit.None, credit.Batch // the critic is the baseline
	case c.Assignment == credit.TurnGAE:
		c.Discount = cmp.Or(c.Discount, 0.99)
		level, whiten = credit.None, credit.Batch
	case c.Assignment == credit.ValueDifference:
		level = credit.None // a difference needs no baseline
	case c.discounts():
		c.Discount = cmp.Or(c.Discount, 0.95)
	}
	if c.UsesCritic() {
		c.Lambda = cmp.Or(c.Lambda, 0.95)
	}
	if c.Assignment == credit.GiGPO {
		c.StepWeight = cmp.Or(c.StepWeight, 1)
	}
	if c.Mean == credit.Running {
		c.Std = cmp.Or(c.Std, credit.None)
	}
	c.Mean, c.Std = cmp.Or(c.Mean, level), cmp.Or(c.Std, level)
	c.Whiten = cmp.Or(c.Whiten, whiten)
	if c.Judge != nil {
		j := *c.Judge // the caller's copy does not change
		j.Requests = cmp.Or(j.Requests, 1000)
		j.Seconds = cmp.Or(j.Seconds, 60)
		c.Judge = &j
	}
	if c.KLInReward != nil {
		kl := *c.KLInReward // the caller's copy does not change
		kl.Estimator = cmp.Or(kl.Estimator, credit.KL1)
		c.KLInReward = &kl
	}
	if c.Overlong != nil {
		o := *c.Overlong // the caller's copy does not change
		o.Penalty = cmp.Or(o.Penalty, 1)
		c.Overlong = &o
	}
	return c
}

func (c Critic) withDefaults() Critic {
	c.LearningRate = cmp.Or(c.LearningRate, 1e-3)
	c.Passes = cmp.Or(c.Passes, 4)
	return c
}

func (c Credit) check(f *Faults, t Training) {
	c.checkRewards(f)
	f.choice("credit.assignment", string(c.Assignment))
	f.choice("credit.tokens", string(c.Tokens))
	f.choice("credit.mean", string(c.Mean))
	f.choice("credit.std", string(c.Std))
	f.choice("credit.whiten", string(c.Whiten))
	if c.discounts() {
		f.number("credit.discount", c.Discount, bounds.Positive(1))
	} else {
		f.unused("credit.discount", c.Discount != 0, "neither credit.assignment nor credit.tokens discounts")
	}
	if c.UsesCritic() {
		f.number("credit.lambda", c.Lambda, bounds.Positive(1))
	} else {
		f.unused("credit.lambda", c.Lambda != 0, `only credit.assignment "turn_gae" and credit.tokens "gae" have it`)
	}
	if c.Assignment == credit.GiGPO {
		f.number("credit.step_weight", c.StepWeight, bounds.Positive(math.Inf(1)))
	} else {
		f.unused("credit.step_weight", c.StepWeight != 0, `only credit.assignment "gigpo" compares steps`)
	}
	if c.Tokens == credit.GAE && c.Assignment != credit.Identical {
		f.add("credit.assignment", `leave it out, or give credit.tokens "uniform"`, `credit.tokens "gae" gives every token its own advantage, whatever its call's`)
	}
	switch {
	case c.Assignment == credit.ValueDifference && t.TasksPerStep < 2:
		f.add("training.tasks_per_step", "give at least 2", "success is estimated from other tasks of the step")
	case c.estimated():
		const why = "an estimate of the return is what rewards are compared with"
		f.unused("credit.mean", c.Mean != credit.None, why)
		f.unused("credit.std", c.Std != credit.None, why)
		f.unused("credit.combine", c.Combine == CombineSeparate, why)
	case c.Std == credit.ByMean && c.Mean != credit.Group:
		f.add("credit.std", `give credit.mean "group"`, `"mean" divides by the mean of the group`)
	case c.Std == credit.Group && c.Mean != credit.Group:
		f.add("credit.std", `give credit.mean "group", or credit.std "batch"`, "a group of equal rewards has no deviation, but is not equal to another mean")
	}
	if c.Mean == credit.Running {
		f.unused("credit.combine", c.Combine == CombineSeparate, "a running mean is one of all rewards together")
		if c.Assignment == credit.Discounted && (len(c.Signals) > 0 || c.KLInReward != nil) {
			f.add("credit.mean", `give "group", or another credit.assignment`, "the rewards after a call are not compared with a running mean of whole attempts")
		}
	}
	c.checkJudge(f, t.TasksPerStep*t.SamplesPerTask)
	f.unused("credit.leave_one_out", c.LeaveOneOut && c.Mean != credit.Group, `it concerns the mean of the group, and credit.mean is not "group"`)
	f.unused("credit.per_agent", c.PerAgent && c.Mean == credit.None && c.Std == credit.None, "nothing is compared")
	if t.SamplesPerTask == 1 && c.Mean == credit.Group {
		f.add("training.samples_per_task", `give at least 2, or credit.mean "batch" or "none"`, "a group of 1 equals its own mean and learns nothing")
	}
}

// checkRewards checks the settings of the rewards, signals and penalties that are summed
// up before they are compared.
func (c Credit) checkRewards(f *Faults) {
	f.choice("credit.combine", c.Combine)
	f.choice("credit.truncated", c.Truncated)
	f.unused("credit.combine", c.Combine == CombineSeparate && len(c.Rewards) < 2, "credit.rewards names fewer than two rewards")
	weights := func(key string, of map[string]float64) {
		for _, name := range sortedKeys(of) {
			if w := of[name]; w == 0 || math.IsNaN(w) || math.IsInf(w, 0) {
				f.add(key+"."+name, "give a number other than 0, or remove the key", "%v is not possible", w)
			}
		}
	}
	weights("credit.rewards", c.Rewards)
	for _, name := range sortedKeys(c.Rewards) {
		if f.name("credit.rewards", name); name == "" {
			f.add("credit.rewards", "give the name that the agent posts, or final", "a reward without a name")
		}
	}
	weights("credit.signals", c.Signals)
	for _, name := range sortedKeys(c.Signals) {
		f.oneOf("credit.signals."+name, name, Signals())
	}
	if o := c.Overlong; o != nil {
		f.whole("credit.overlong.tokens", o.Tokens, 1, 1e9)
		f.whole("credit.overlong.buffer", o.Buffer, 1, 1e9)
		f.number("credit.overlong.penalty", o.Penalty, bounds.Positive(math.Inf(1)))
		if o.Buffer > o.Tokens && o.Tokens > 0 {
			f.add("credit.overlong.buffer", "give at most credit.overlong.tokens", "%d of %d tokens", o.Buffer, o.Tokens)
		}
	}
	if c.KLInReward != nil {
		f.choice("credit.kl_in_reward.estimator", string(c.KLInReward.Estimator))
		f.number("credit.kl_in_reward.weight", c.KLInReward.Weight, bounds.Positive(math.Inf(1)))
		if c.Combine == CombineSeparate {
			f.add("credit.kl_in_reward", `give credit.combine "sum", or loss.kl`, "compared by itself and divided by its own deviation, a penalty has no weight")
		}
	}
	f.number("credit.format_penalty", c.FormatPenalty, bounds.Between(0, math.Inf(1)))
	if _, err := regexp.Compile(c.TrainAgents); err != nil {
		f.add("credit.train_agents", "write it in RE2's syntax", "%q is not a regular expression: %v", c.TrainAgents, err)
	}
}

// checkJudge checks the judge, which needs at least one request for each rollout of a
// step.
func (c Credit) checkJudge(f *Faults, rollouts int) {
	j := c.Judge
	switch {
	case j == nil && c.Assignment == credit.Judge:
		f.add("credit.judge.url", "give the address and the model of a judge", "missing")
	case j == nil:
	case c.Assignment != credit.Judge:
		f.unused("credit.judge", true, `only credit.assignment "judge" asks one`)
	default:
		f.baseURL("credit.judge.url", j.URL)
		if j.Model == "" {
			f.add("credit.judge.model", "give the model's name at the judge", "missing")
		}
		f.name("credit.judge.model", j.Model)
		f.variable("credit.judge.key", j.Key)
		f.whole("credit.judge.requests", j.Requests, 1, 1e9)
		f.number("credit.judge.seconds", j.Seconds, bounds.Positive(3600))
		if j.Requests > 0 && j.Requests < rollouts {
			f.add("credit.judge.requests", fmt.Sprintf("give at least %d", rollouts), "%d are too few for the %d rollouts of a step", j.Requests, rollouts)
		}
	}
}

func (s Spec) checkCritic(f *Faults) {
	if s.Critic == nil {
		return // WithDefaults adds a critic if one is needed
	}
	f.unused("critic", !s.Credit.UsesCritic() && !s.hasPolicyWithCritic(), "neither credit.assignment nor credit.tokens asks for one")
	f.number("critic.learning_rate", s.Critic.LearningRate, bounds.LearningRate())
	f.whole("critic.passes", s.Critic.Passes, 1, 100)
	f.number("critic.clip", s.Critic.Clip, bounds.Between(0, math.Inf(1)))
}

// hasPolicyWithCritic reports whether the credit of one of several policies needs a critic.
func (s Spec) hasPolicyWithCritic() bool {
	return len(s.Policies) > 0 && s.anyCredit(Credit.UsesCritic)
}

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
