package credit

import (
	"fmt"
	"slices"
)

// Advantages has the advantages that a Plan assigns to a batch. Skipped and masked calls
// are not trained: they have advantage 0, and zeros for their tokens, also in Returns.
type Advantages struct {
	// Trajectory is the number that is reported for each trajectory, by group and sample:
	// the normalized sum of the reward and of all that the trained calls earned, before
	// Assignment spreads it. It is 0 if all calls are skipped.
	Trajectory [][]float64
	// Call is by group, sample and call. If the tokens of a call have different
	// advantages, it is their mean.
	Call [][][]float64
	// Token is by group, sample, call and trained token. It is nil if every token has the
	// advantage of its call.
	Token [][][][]float64
	// Baselines are Plan.Baselines after the batch; nil unless the plan has running ones.
	Baselines map[string]float64
	// Returns are the targets of a critic, with the shape of Token. They are nil without
	// a critic.
	Returns [][][][]float64
}

// Teaches reports whether any trained token of a group has an advantage other than 0.
func (a Advantages) Teaches(groups [][]Trajectory, group int) bool {
	for i, t := range groups[group] {
		for k, c := range t.Calls {
			switch {
			case !c.Trains() || c.Tokens == 0:
			case a.Token == nil && a.Call[group][i][k] != 0:
				return true
			case a.Token != nil && slices.ContainsFunc(a.Token[group][i][k], func(x float64) bool { return x != 0 }):
				return true
			}
		}
	}
	return false
}

// empty returns Advantages of zeros with the shape of the groups.
func (p Plan) empty(groups [][]Trajectory) Advantages {
	out := Advantages{Trajectory: make([][]float64, len(groups)), Call: make([][][]float64, len(groups))}
	for g, samples := range groups {
		out.Trajectory[g], out.Call[g] = make([]float64, len(samples)), make([][]float64, len(samples))
		for i, t := range samples {
			out.Call[g][i] = make([]float64, len(t.Calls))
		}
	}
	if p.Tokens == GAE {
		out.Token = byToken(groups)
	}
	if p.critic() {
		out.Returns = byToken(groups)
	}
	return out
}

// byToken returns zeros by group, sample, call and token. The tokens of a trajectory lie
// in one piece of memory.
func byToken(groups [][]Trajectory) [][][][]float64 {
	out := make([][][][]float64, len(groups))
	for g, samples := range groups {
		out[g] = make([][][]float64, len(samples))
		for i, t := range samples {
			tokens := 0
			for _, c := range t.Calls {
				tokens += c.Tokens
			}
			rest := make([]float64, tokens)
			out[g][i] = make([][]float64, len(t.Calls))
			for k, c := range t.Calls {
				out[g][i][k], rest = rest[:c.Tokens:c.Tokens], rest[c.Tokens:]
			}
		}
	}
	return out
}

// mask takes away the credit of masked calls.
func (a Advantages) mask(groups [][]Trajectory) {
	for g, samples := range groups {
		for i, t := range samples {
			for k, c := range t.Calls {
				if !c.Masked {
					continue
				}
				a.Call[g][i][k] = 0
				if a.Token != nil {
					clear(a.Token[g][i][k])
				}
				if a.Returns != nil {
					clear(a.Returns[g][i][k])
				}
			}
		}
	}
}

// check returns an error for numbers that overflowed although the rewards were finite.
func (a Advantages) check(groups [][]Trajectory) error {
	for g, samples := range groups {
		for i, t := range samples {
			numbers := [][]float64{{a.Trajectory[g][i]}, a.Call[g][i]}
			if a.Token != nil {
				numbers = append(numbers, a.Token[g][i]...)
			}
			if a.Returns != nil {
				numbers = append(numbers, a.Returns[g][i]...)
			}
			for _, x := range numbers {
				if infinite(x) >= 0 {
					return fmt.Errorf("%w: the advantage of %s is not finite; its rewards or those it is compared with are too large", ErrReward, t.Name)
				}
			}
		}
	}
	return nil
}
