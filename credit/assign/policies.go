package assign

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// policyOf returns the one policy that a spec names; "" if it names none or several.
func policyOf(s spec.Spec) string {
	if names := s.PolicyNames(); len(names) == 1 {
		return names[0]
	}
	return ""
}

// several reports whether the credit of several policies has to be put together.
func several(s spec.Spec) bool { return len(s.Policies) > 1 }

// baselinePrefix begins the names of the running baselines of one of several policies.
func baselinePrefix(s spec.Spec) string { return policyOf(s) + "/" }

// ofEach assigns credit for each policy to the calls that it answered, and puts the results
// together: a call has the credit of its policy, and is skipped if that is not trained. The
// number of a trajectory is the mean of those of the policies. A policy with nothing to train
// counts for nothing. If that is each of them, the error is that of the first.
func ofEach(s spec.Spec, baselines map[string]float64, groups [][]Sample) ([][]credit.Trajectory, credit.Advantages, error) {
	var all joined
	var idle error
	for _, one := range s.TrainedSpecs() {
		prefix := baselinePrefix(one)
		var own map[string]float64
		for name, v := range baselines {
			if rest, ok := strings.CutPrefix(name, prefix); ok {
				if own == nil {
					own = map[string]float64{}
				}
				own[rest] = v
			}
		}
		trajectories, given, err := advantages(one, own, groups)
		if NothingToTrain(err) {
			if idle == nil {
				idle = err
			}
			all.keep(prefix, own)
			continue
		}
		if err != nil {
			return nil, given, fmt.Errorf("policy %s: %w", policyOf(one), err)
		}
		all.add(trajectories, given)
		all.keep(prefix, given.Baselines)
	}
	if all.policies == 0 {
		return nil, credit.Advantages{}, idle
	}
	for _, samples := range all.given.Trajectory {
		for i := range samples {
			samples[i] /= float64(all.policies)
		}
	}
	return all.trajectories, all.given, nil
}

// joined is the credit of the policies so far.
type joined struct {
	policies     int
	trajectories [][]credit.Trajectory
	given        credit.Advantages
}

// keep keeps the running baselines of a policy.
func (j *joined) keep(prefix string, baselines map[string]float64) {
	for name, v := range baselines {
		if j.given.Baselines == nil {
			j.given.Baselines = map[string]float64{}
		}
		j.given.Baselines[prefix+name] = v
	}
}

// add adds the credit of another policy.
func (j *joined) add(trajectories [][]credit.Trajectory, given credit.Advantages) {
	j.policies++
	if j.policies == 1 {
		given.Baselines = j.given.Baselines
		j.trajectories, j.given = trajectories, given
		return
	}
	if given.Token != nil && j.given.Token == nil {
		j.given.Token = eachToken(j.trajectories, j.given.Call)
	}
	if given.Returns != nil && j.given.Returns == nil {
		j.given.Returns = eachToken(j.trajectories, nil)
	}
	if j.given.Token != nil && given.Token == nil {
		given.Token = eachToken(trajectories, given.Call)
	}
	if j.given.Returns != nil && given.Returns == nil {
		given.Returns = eachToken(trajectories, nil)
	}
	for g, samples := range trajectories {
		for i, t := range samples {
			j.given.Trajectory[g][i] += given.Trajectory[g][i]
			for k, c := range t.Calls {
				if c.Skip {
					continue
				}
				j.trajectories[g][i].Calls[k], j.given.Call[g][i][k] = c, given.Call[g][i][k]
				if j.given.Token != nil {
					j.given.Token[g][i][k] = given.Token[g][i][k]
				}
				if j.given.Returns != nil {
					j.given.Returns[g][i][k] = given.Returns[g][i][k]
				}
			}
			for name, v := range t.Rewards { // names that only this policy weights
				if _, ok := j.trajectories[g][i].Rewards[name]; !ok {
					j.trajectories[g][i].Rewards[name] = v
				}
			}
		}
	}
}

// eachToken returns, for each trained token, the number of its call; zeros if calls is nil. A
// policy whose credit is by call has it so beside one whose credit is by token, and one
// without a critic has no returns.
func eachToken(trajectories [][]credit.Trajectory, calls [][][]float64) [][][][]float64 {
	out := make([][][][]float64, len(trajectories))
	for g, samples := range trajectories {
		out[g] = make([][][]float64, len(samples))
		for i, t := range samples {
			out[g][i] = make([][]float64, len(t.Calls))
			for k, c := range t.Calls {
				number := 0.0
				if calls != nil {
					number = calls[g][i][k]
				}
				out[g][i][k] = slices.Repeat([]float64{number}, c.Tokens)
			}
		}
	}
	return out
}
