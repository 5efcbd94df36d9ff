package credit

import (
	"fmt"
	"slices"
)

// penalized are the groups with what their trained tokens lose for leaving the
// reference: token t of a call has the reward
//
//	−Weight·kl_t,  kl_t an estimate of KL(μ ‖ π_ref) by log μ_t − log π_ref,t
//
// beside all else (PPO of Ouyang et al., 2022, arXiv:2203.02155; RLOO,
// arXiv:2402.14740; REINFORCE++, arXiv:2501.03262). Where tokens have advantages of
// their own (GAE), a penalty is the reward of its token. Elsewhere those of a call add
// up to what it earned by itself, and what a trajectory's calls earned is part of its
// reward before that is compared with others. Calls that are skipped lose nothing.
func (p Plan) penalized(groups [][]Trajectory) [][]Trajectory {
	if p.KL.Weight == 0 {
		return groups
	}
	out := make([][]Trajectory, len(groups))
	for g, samples := range groups {
		out[g] = slices.Clone(samples)
		for i, t := range samples {
			calls := slices.Clone(t.Calls)
			for k, c := range calls {
				if c.Skip {
					continue
				}
				calls[k].penalties = make([]float64, c.Tokens)
				for j := range c.Tokens {
					calls[k].penalties[j] = -p.KL.Weight * p.KL.Estimate(c.Sampled[j], c.Reference[j])
				}
			}
			out[g][i].Calls = calls
		}
	}
	return out
}

// check refuses a call that can't be compared with the reference.
func (k KL) check(c Call) error {
	if k.Weight == 0 {
		return nil
	}
	for i, numbers := range [][]float64{c.Sampled, c.Reference} {
		name := []string{"log-probabilities", "log-probabilities under the reference"}[i]
		if len(numbers) != c.Tokens {
			return fmt.Errorf("%w: %d %s for %d tokens", ErrEstimate, len(numbers), name, c.Tokens)
		}
		if at := infinite(numbers); at >= 0 {
			return fmt.Errorf("%w: %s: that of token %d is %v", ErrEstimate, name, at, numbers[at])
		}
	}
	return nil
}
