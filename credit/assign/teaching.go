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

// NothingToTrain reports whether err says that no call of the groups can be trained. The
// step then makes a version without an update.
func NothingToTrain(err error) bool {
	return errors.Is(err, ErrAgents) || errors.Is(err, credit.ErrNothingToTrain)
}

// Ungiven reports whether err says that an attempt can't be given credit, because of its
// outcome or its rewards. Its group is then left out of the batch.
func Ungiven(err error) bool {
	for _, of := range []error{ErrOutcome, ErrLimit, ErrMinimum, credit.ErrReward, credit.ErrMissingReward} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// Faults returns, by group, why an attempt of the group can't be given credit. Groups
// without such an attempt are not in the result. It returns an error for a fault of the
// spec.
func Faults(s spec.Spec, groups [][]Sample) (map[int]error, error) {
	out := map[int]error{}
	for g := range groups {
		trajectories, err := Trajectories(s, groups[g:g+1])
		if err == nil {
			for _, t := range trajectories[0] {
				if _, err = s.Credit.Plan().Reward(t); err != nil {
					break
				}
			}
		}
		switch {
		case err == nil, NothingToTrain(err):
		case Ungiven(err):
			out[g] = err
		default:
			return nil, err
		}
	}
	return out, nil
}

// Without returns the groups that are not in out.
func Without(groups [][]Sample, out map[int]error) [][]Sample {
	var kept [][]Sample
	for g := range groups {
		if out[g] == nil {
			kept = append(kept, groups[g])
		}
	}
	return kept
}

// FlatGroups reports, for each group, whether it teaches nothing: all advantages of its
// trained tokens would be 0, or it has no such token, or one of its attempts can't be given
// credit. It may be used only for credit that
// compares the samples of a group with each other alone, so that other groups do not
// matter; see spec.Credit.FlatByCredit.
func FlatGroups(s spec.Spec, groups [][]Sample) ([]bool, error) {
	out := make([]bool, len(groups))
	for g := range groups {
		trajectories, given, err := Advantages(s, nil, groups[g:g+1])
		if NothingToTrain(err) || Ungiven(err) {
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
