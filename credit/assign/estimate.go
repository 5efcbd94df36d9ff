package assign

import (
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	// lastTokens is how many of the last tokens of a prompt are features.
	lastTokens = 64
	// lastNumber is the largest number of a call that is a feature. Later calls count as
	// this number.
	lastNumber = 15
)

// Estimate sets the reward that each call of each sample could expect. It learns it from
// the other groups and from earlier ones. The signals of all samples must have been read
// before. If fewer than two groups have calls, nothing can be estimated: the error then
// wraps credit.ErrNothingToTrain.
//
// With several policies, each learns from the calls that it answered what these calls could
// expect. If a policy can learn nothing, its calls have no estimate (NaN), and if its credit
// needs one, it has nothing to train in the step. That is an error only if it is so for all.
func Estimate(of spec.Spec, earlier, groups [][]Sample) error {
	if !several(of) {
		return estimate(of, earlier, groups)
	}
	var idle error
	learned := false
	for _, one := range of.TrainedSpecs() {
		err := estimate(one, earlier, groups)
		switch {
		case err == nil:
			learned = true
		case !NothingToTrain(err):
			return err
		case idle == nil:
			idle = err
		}
	}
	if !learned {
		return idle
	}
	return nil
}

func estimate(of spec.Spec, earlier, groups [][]Sample) error {
	all := slices.Concat(earlier, groups)
	trajectories, err := Trajectories(of, all)
	if err != nil {
		return err
	}
	examples, err := examples(of.Credit.Plan(), all, trajectories)
	if err != nil {
		return err
	}
	forecasts, err := credit.FitValues(examples)
	if err != nil {
		return err
	}
	forecasts = forecasts[len(earlier):]
	for g, samples := range groups {
		for i := range samples {
			one := &samples[i]
			if one.Before == nil || len(one.Before) != len(one.History) {
				one.Before = slices.Repeat([]float64{math.NaN()}, len(one.History))
			}
			for k, c := range one.History {
				if policy := policyOf(of); policy == "" || c.Policy == policy {
					one.Before[k] = forecasts[g].Value(features(c, one.Calls[k], k))
				}
			}
		}
	}
	return nil
}

// examples returns, for each trained call, the features before it and the reward of its
// attempt.
func examples(p credit.Plan, groups [][]Sample, trajectories [][]credit.Trajectory) ([][]credit.Example, error) {
	out := make([][]credit.Example, len(groups))
	for g, samples := range groups {
		for i, one := range samples {
			reward, err := p.Reward(trajectories[g][i])
			if err != nil {
				return nil, err
			}
			for k, c := range one.History {
				if !trajectories[g][i].Calls[k].Skip {
					out[g] = append(out[g], credit.Example{Features: features(c, one.Calls[k], k), Outcome: reward})
				}
			}
		}
	}
	return out, nil
}

// features returns features by which calls can differ in the reward that they may expect:
// the agent, the number of the call, the state, the last two together, and the end of the
// prompt, as single tokens and in pairs.
func features(c record.Call, seen signals.Call, index int) []uint64 {
	index = min(index, lastNumber)
	state := text(seen.State)
	out := []uint64{
		number('n', uint64(index)), number('a', text(seen.Agent)), number('s', state), number('b', state, uint64(index)),
	}
	end := c.Prompt[max(0, len(c.Prompt)-lastTokens):]
	for i, token := range end {
		out = append(out, number('t', uint64(token)))
		if i > 0 {
			out = append(out, number('p', uint64(end[i-1]), uint64(token)))
		}
	}
	return out
}

// The hash is 64-bit FNV-1a.
const (
	fnvOffset uint64 = 14695981039346656037
	fnvPrime  uint64 = 1099511628211
)

// number returns the feature of a kind with these numbers.
func number(kind byte, of ...uint64) uint64 {
	h := (fnvOffset ^ uint64(kind)) * fnvPrime
	for _, v := range of {
		for range 8 {
			h = (h ^ v&0xff) * fnvPrime
			v >>= 8
		}
	}
	return h
}

func text(s string) uint64 {
	h := fnvOffset
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// Advantages assigns credit to the samples, by group and sample. The samples must hold
// what NeedsSignals and NeedsEstimates ask for, and a critic's values or a judge's scores
// if the credit uses them. baselines are the running baselines after the step before;
// they are nil if the credit has none.
//
// With several policies, each call has the credit of the policy that answered it; the number
// of a trajectory is the mean of those for the policies.
func Advantages(s spec.Spec, baselines map[string]float64, groups [][]Sample) ([][]credit.Trajectory, credit.Advantages, error) {
	if several(s) {
		return ofEach(s, baselines, groups)
	}
	return advantages(s, baselines, groups)
}

func advantages(s spec.Spec, baselines map[string]float64, groups [][]Sample) ([][]credit.Trajectory, credit.Advantages, error) {
	trajectories, err := Trajectories(s, groups)
	if err != nil {
		return nil, credit.Advantages{}, err
	}
	for _, g := range groups {
		for _, one := range g {
			if err := one.check(s); err != nil {
				return nil, credit.Advantages{}, err
			}
		}
	}
	plan := s.Credit.Plan()
	plan.Baselines = baselines
	given, err := plan.Advantages(trajectories)
	return trajectories, given, err
}

// check returns an error if a sample lacks an input of the credit. Package credit would
// take missing numbers for zeros.
func (s Sample) check(of spec.Spec) error {
	c, policy := of.Credit, policyOf(of)
	unknown := func() bool {
		for k, call := range s.History {
			if (policy == "" || call.Policy == policy) && (s.Before == nil || math.IsNaN(s.Before[k])) {
				return true
			}
		}
		return policy == "" && s.Before == nil
	}
	switch {
	case needsEstimates(c) && unknown():
		return fmt.Errorf("%w: success is estimated from other groups, and fewer than two groups have calls", credit.ErrNothingToTrain)
	case c.KLInReward != nil && s.Reference == nil:
		return fmt.Errorf("%w: version 0 has not scored the calls of %s", credit.ErrEstimate, s.Address)
	case c.Assignment == credit.Judge && s.Judged == nil:
		return fmt.Errorf("%w: no judge has scored the calls of %s", credit.ErrEstimate, s.Address)
	}
	return nil
}

// NeedsSignals reports whether the credit of a spec reads the signals of single calls.
func NeedsSignals(s spec.Spec) bool {
	return slices.ContainsFunc(s.TrainedSpecs(), func(one spec.Spec) bool { return needsSignals(one.Credit) })
}

// NeedsEstimates reports whether the credit of a spec needs estimates learned from the run's
// own calls.
func NeedsEstimates(s spec.Spec) bool {
	return slices.ContainsFunc(s.TrainedSpecs(), func(one spec.Spec) bool { return needsEstimates(one.Credit) })
}

func needsSignals(c spec.Credit) bool {
	return len(c.Signals) > 0 || c.TrainAgents != "" || c.PerAgent || c.Assignment == credit.GiGPO || needsEstimates(c)
}

func needsEstimates(c spec.Credit) bool { return c.Assignment == credit.ValueDifference }
