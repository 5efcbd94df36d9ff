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
// rewards their attempts get. One possible reason: calls are compared only with calls of
// the same agent, and each attempt has a different agent. NeverTeaches tries other
// rewards, assigns credit and looks at the advantages. It does not change the samples.
func NeverTeaches(s spec.Spec, groups [][]Sample) (bool, error) {
	s.Grader.Limit = 0 // the rewards that are tried do not come from the grader
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

// patterns returns functions that choose a reward for each sample of a group. No estimate
// and no shaping can make the samples equal under all of them.
func patterns() []func(sample int) float64 {
	return []func(int) float64{
		func(i int) float64 { return float64(i%2) * 1024 },
		func(i int) float64 { return float64((i/2)%2) * 512 },
		func(i int) float64 { return float64(1+i*i) * 64 },
	}
}

// withRewards returns a copy of the groups in which each attempt is completed and has the
// reward of a pattern.
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

// FlatGroups reports, for each group, whether it teaches nothing: all advantages of its
// trained tokens would be 0, or it has no such token. It may be used only for credit that
// compares the samples of a group with each other alone, so that other groups do not
// matter; see spec.Credit.FlatByCredit.
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
