package credit

import (
	"errors"
	"fmt"
	"math"
)

// Level is what a mean or deviation is taken over.
type Level string

// The levels. An empty Level is None.
const (
	None  Level = "none"
	Group Level = "group"
	Batch Level = "batch"
)

// stdEpsilon keeps the division finite; it is verl's, added to the deviation.
const stdEpsilon = 1e-6

// ErrReward is wrapped when a reward cannot be trained on.
var ErrReward = errors.New("bad reward")

// Normalization makes rewards comparable: A = (R − mean) / (std + 1e-6), where
// mean and std are taken over the level given, and None leaves them out. The
// deviation is the unbiased one (n−1).
//
//	GRPO     (arXiv:2402.03300)  {Group, Group, false}
//	Dr. GRPO (arXiv:2503.20783)  {Group, None,  false}
//	RLOO     (arXiv:2402.14740)  {Group, None,  true}
//
// A group of one has no baseline: its mean at level Group is its own reward, so
// its advantage is 0, not the reward itself. A group whose rewards are all equal
// has advantage 0 exactly.
type Normalization struct {
	Mean Level
	Std  Level
	// LeaveOneOut leaves each sample out of its own group mean.
	LeaveOneOut bool
}

// Advantages returns one advantage for each reward of each group. Rewards that
// are not finite are refused with ErrReward, naming group and sample.
func (n Normalization) Advantages(groups [][]float64) ([][]float64, error) {
	var all []float64
	for g, rewards := range groups {
		for i, r := range rewards {
			if math.IsNaN(r) || math.IsInf(r, 0) {
				return nil, fmt.Errorf("%w: group %d sample %d is %v", ErrReward, g, i, r)
			}
		}
		all = append(all, rewards...)
	}
	batchMean, batchStd := moments(all)
	out := make([][]float64, len(groups))
	for g, rewards := range groups {
		mean, std := moments(rewards)
		out[g] = make([]float64, len(rewards))
		for i, r := range rewards {
			out[g][i] = n.one(r, rewards, mean, std, batchMean, batchStd)
		}
	}
	return out, nil
}

func (n Normalization) one(r float64, rewards []float64, mean, std, batchMean, batchStd float64) float64 {
	a := r
	switch {
	case n.Mean == Group && n.LeaveOneOut && len(rewards) > 1:
		a = r - (mean*float64(len(rewards))-r)/float64(len(rewards)-1)
	case n.Mean == Group:
		a = r - mean
	case n.Mean == Batch:
		a = r - batchMean
	}
	if n.Mean == Group && constant(rewards) {
		return 0
	}
	switch n.Std {
	case Group:
		a /= std + stdEpsilon
	case Batch:
		a /= batchStd + stdEpsilon
	}
	return a
}

// Varies reports whether a group can teach anything relative to its own mean.
func Varies(rewards []float64) bool { return !constant(rewards) }

func constant(x []float64) bool {
	for _, v := range x {
		if v != x[0] {
			return false
		}
	}
	return true
}

// moments are the mean and the unbiased deviation, 0 for fewer than two numbers.
func moments(x []float64) (mean, std float64) {
	if len(x) == 0 {
		return 0, 0
	}
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	if len(x) < 2 {
		return mean, 0
	}
	for _, v := range x {
		std += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(std / float64(len(x)-1))
}
