package assign

import (
	"errors"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// NeverTeaches reports whether no trained token of the groups gets an advantage, whatever
// rewards their attempts get. One reason is that calls are compared only with calls of
// the same agent, and each attempt has an agent of its own. NeverTeaches tries other
// rewards, assigns credit and looks at the advantages. It does not change the samples.
func NeverTeaches(s spec.Spec, groups [][]Sample) (bool, error) {
	s.Grader.Limit = 0 // the rewards are no grader's
	for _, pattern := range patterns() {
		trajectories, given, err := Advantages(s, nil, withRewards(s.Credit, groups, pattern))
		if err != nil {
			return false, err
		}
		for g := range trajectories {
			if given.Teaches(trajectories, g) {
				return false, nil
			}
		}
	}
	return true, nil
}

// patterns give each sample of a group a reward. No estimate and no shaping can make all
// of them look equal.
func patterns() []func(sample int) float64 {
	return []func(int) float64{
		func(i int) float64 { return float64(i%2) * 1024 },
		func(i int) float64 { return float64((i/2)%2) * 512 },
		func(i int) float64 { return float64(1+i*i) * 64 },
	}
}

// withRewards are the groups, each attempt completed with the reward of a pattern.
func withRewards(c spec.Credit, groups [][]Sample, reward func(int) float64) [][]Sample {
	names := slices.AppendSeq([]string{credit.Final}, maps.Keys(c.Rewards))
	out := make([][]Sample, len(groups))
	for g, samples := range groups {
		out[g] = slices.Clone(samples)
		for i := range out[g] {
			one, value := &out[g][i], reward(i)
			one.Outcome, one.Reward, one.Rewards = trace.Completed, &value, nil
			for _, name := range names {
				one.Rewards = append(one.Rewards, trace.Reward{Address: one.Address, Name: name, Value: value})
			}
		}
	}
	return out
}

// FlatGroups reports which groups teach nothing: all advantages of their trained tokens
// would be 0, or they have no such token. It is for credit that compares the samples of
// a group with each other alone, so that other groups do not matter; see
// spec.Credit.FlatByCredit.
func FlatGroups(s spec.Spec, groups [][]Sample) ([]bool, error) {
	out := make([]bool, len(groups))
	for g := range groups {
		trajectories, given, err := Advantages(s, nil, groups[g:g+1])
		if errors.Is(err, ErrAgents) || errors.Is(err, credit.ErrNothingToTrain) {
			out[g] = true
			continue
		}
		if err != nil {
			return nil, err
		}
		out[g] = !given.Teaches(trajectories, 0)
	}
	return out, nil
}
