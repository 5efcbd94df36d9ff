package assign

import (
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// Silent reports whether the attempts of groups get no advantage for any trained
// token, whatever their rewards would have been: for example since each call is
// compared with those of its own agent, and each attempt is an agent of its own. It
// gives the attempts other rewards, assigns credit as Of does and looks at what
// comes out. The samples themselves stay as they are.
func Silent(s spec.Spec, groups [][]Sample) (bool, error) {
	s.Grader.Limit = 0 // the rewards are no grader's
	for _, pattern := range patterns() {
		trajectories, given, err := Of(s, supposed(s.Credit, groups, pattern))
		if err != nil {
			return false, err
		}
		for g := range trajectories {
			for i, t := range trajectories[g] {
				for k, c := range t.Calls {
					if c.Skip || c.Tokens == 0 {
						continue
					}
					if given.Token == nil && given.Call[g][i][k] != 0 {
						return false, nil
					}
					if given.Token != nil && slices.ContainsFunc(given.Token[g][i][k], func(a float64) bool { return a != 0 }) {
						return false, nil
					}
				}
			}
		}
	}
	return true, nil
}

// patterns give the samples of a group rewards by their places. No estimate and no
// shaping can make all of them look equal.
func patterns() []func(sample int) float64 {
	return []func(int) float64{
		func(i int) float64 { return float64(i%2) * 1024 },
		func(i int) float64 { return float64((i/2)%2) * 512 },
		func(i int) float64 { return float64(1+i*i) * 64 },
	}
}

// supposed are groups whose attempts ended well with rewards by a pattern.
func supposed(c spec.Credit, groups [][]Sample, reward func(int) float64) [][]Sample {
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
