package credit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Final is the name of the main reward: the grader's, or the one that an agent posts
// without a name.
const Final = "final"

// Reward returns the reward of a trajectory under the plan's weights, without the calls'
// own rewards.
func (p Plan) Reward(t Trajectory) (float64, error) {
	named, err := p.named(t)
	if err != nil {
		return 0, err
	}
	return p.sum(named), nil
}

// read returns the named rewards of the trajectories, and an error for those that cannot
// be trained on.
func (p Plan) read(groups [][]Trajectory) ([][][]float64, error) {
	out := make([][][]float64, len(groups))
	tokens, masked, first := 0, 0, ""
	for g, samples := range groups {
		out[g] = make([][]float64, len(samples))
		for i, t := range samples {
			first = cmp.Or(first, t.Name)
			var err error
			if out[g][i], err = p.named(t); err != nil {
				return nil, err
			}
			if err := t.check(p); err != nil {
				return nil, err
			}
			tokens, masked = tokens+t.tokens(), masked+t.masked()
		}
	}
	if tokens == 0 && masked > 0 {
		return nil, fmt.Errorf("%w: all %d replies that could be trained were cut off and are masked, from %s on", ErrNothingToTrain, masked, first)
	}
	if tokens == 0 {
		return nil, fmt.Errorf("%w: no call of an agent that is trained sampled a token, from %s on", ErrNothingToTrain, cmp.Or(first, "an empty batch"))
	}
	return out, nil
}

// names returns the names of the rewards that have a weight, sorted.
func (p Plan) names() []string {
	if len(p.Rewards) == 0 {
		return []string{Final}
	}
	return slices.Sorted(maps.Keys(p.Rewards))
}

func (p Plan) weight(name string) float64 {
	if len(p.Rewards) == 0 {
		return 1
	}
	return p.Rewards[name]
}

// named returns the rewards of a trajectory that have a weight, in the order of their
// names.
func (p Plan) named(t Trajectory) ([]float64, error) {
	var out []float64
	for _, name := range p.names() {
		r, ok := t.Rewards[name]
		if !ok {
			return nil, fmt.Errorf("%w: %s has no reward %q", ErrMissingReward, t.Name, name)
		}
		if !finite(r) {
			return nil, fmt.Errorf("%w: reward %q of %s is %v", ErrReward, name, t.Name, r)
		}
		out = append(out, r)
	}
	return out, nil
}

// sum returns the weighted sum of the named rewards.
func (p Plan) sum(named []float64) float64 {
	var sum float64
	for i, name := range p.names() {
		if i == 0 {
			sum = p.weight(name) * named[i] // 0 + (−0) would lose a sign
			continue
		}
		sum += p.weight(name) * named[i]
	}
	return sum
}

// outcomes returns the advantages of whole trajectories: of the reward and all that the
// calls earned.
func (p Plan) outcomes(b batch) []float64 {
	earned := b.each(path.earned)
	if !p.Separate {
		total := b.each(func(t path) float64 { return t.reward })
		for i, e := range earned {
			if e != 0 {
				total[i] += e
			}
		}
		return b.compare(p.Normalization, total, deviations{})
	}
	out := p.finals(b, deviations{})
	for i, a := range b.compare(p.Normalization, earned, deviations{}) {
		out[i] += a
	}
	return out
}

// finals returns the advantages of the rewards without the calls' own.
func (p Plan) finals(b batch, beside deviations) []float64 {
	if !p.Separate {
		return b.compare(p.Normalization, b.each(func(t path) float64 { return t.reward }), beside)
	}
	out := make([]float64, len(b.paths))
	for n, name := range p.names() {
		for i, a := range b.compare(p.Normalization, b.each(func(t path) float64 { return t.rewards[n] }), deviations{}) {
			out[i] += p.weight(name) * a
		}
	}
	return out
}

// Overlong is DAPO's soft punishment of long attempts (arXiv:2503.14476).
type Overlong struct {
	// Tokens is the length that gets the whole penalty, L_max.
	Tokens int
	// Buffer is the number of tokens before that length over which the penalty grows.
	Buffer int
	// Penalty is what an attempt of that length or a longer one loses.
	Penalty float64
}

// Shape returns the change of an attempt's reward for its number of sampled tokens:
//
//	0                                    up to Tokens − Buffer
//	−Penalty·(length − (Tokens − Buffer))/Buffer  from there to Tokens
//	−Penalty                             beyond
//
// Without a buffer the penalty is a step right after Tokens. In verl's code the penalty
// keeps growing beyond Tokens, where its rollouts end. An attempt of several calls can be
// longer than Tokens, and the paper's formula stops at −Penalty.
func (o Overlong) Shape(length int) float64 {
	over := length - (o.Tokens - o.Buffer)
	switch {
	case over <= 0:
		return 0
	case over >= o.Buffer:
		return -o.Penalty
	}
	return -o.Penalty * float64(over) / float64(o.Buffer)
}

// FormatPenalty returns the change of an attempt's reward for replies that could not be
// parsed. The penalty counts once, however many such replies there are, so that an
// attempt does not gain by ending early.
func FormatPenalty(unparsed int, penalty float64) float64 {
	if unparsed > 0 {
		return -penalty
	}
	return 0
}
