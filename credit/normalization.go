package credit

import (
	"errors"
	"fmt"
	"math"
)

// Level is the set over which a mean or deviation is taken.
type Level string

// The levels. An empty Level is None.
const (
	None  Level = "none"
	Group Level = "group"
	Batch Level = "batch"
	// Running, for a mean, is the running mean of the steps before; see Plan.Baselines.
	Running Level = "running"
	// ByMean, for a deviation, divides by the mean instead of the deviation.
	ByMean Level = "mean"
)

// meanFloor is the smallest mean that ByMean divides by, as a share of the largest
// magnitude among the numbers. The mean of the largest group with one success is well
// above it. A smaller mean is only the rounding error of numbers that cancel.
const meanFloor = 1e-6

// stdEpsilon is added to the deviation and keeps the quotient finite. The value is that
// of verl.
const stdEpsilon = 1e-6

// ErrReward is wrapped when a reward cannot be trained on.
var ErrReward = errors.New("bad reward")

// Normalization makes rewards comparable: A = (R − mean) / (std + 1e-6). mean and std are
// taken over the given levels; None leaves one out. The deviation is the unbiased one
// (n−1).
//
//	GRPO     (arXiv:2402.03300)  {Group, Group, false}
//	Dr. GRPO (arXiv:2503.20783)  {Group, None,  false}
//	RLOO     (arXiv:2402.14740)  {Group, None,  true}
//	MaxRL    (arXiv:2602.02710)  {Group, ByMean, false}
//	REINFORCE++          (arXiv:2501.03262)  {None,  None, false}, then Plan.Whiten
//	REINFORCE++-baseline (the same)          {Group, None, false}, then Plan.Whiten
//	GDPO     (arXiv:2601.05242)  {Group, Group, false}, Plan.Separate and Plan.Whiten
//
// The epsilon, its addition to the deviation, and n−1 are as in verl, whose GRPO most
// published runs used. The paper has no epsilon and does not say whether n or n−1.
//
// A group of one has no baseline: its mean at level Group is its own reward, so its
// advantage is 0, as in prime-rl. verl uses the reward itself as the advantage, which
// would train every single sample towards whatever it did. A group whose rewards are all
// equal has advantage 0 exactly.
//
// ByMean is (R − mean)/mean without an epsilon. A group with success rate p then has
// advantages of 1/p − 1 and −1, as in MaxRL's estimator. It is made for rewards that are
// not negative: if the mean is less than 1e-6 of the largest |R|, no success is left that
// could be weighed, and all advantages are 0.
//
// If Std is Group and Mean is another level, a group of equal rewards still differs from
// that mean, and the difference is divided by the epsilon alone. No published algorithm
// does this.
type Normalization struct {
	Mean Level
	Std  Level
	// LeaveOneOut leaves each sample out of its own group mean.
	LeaveOneOut bool

	baseline float64 // the mean at level Running
}

// Advantages returns one advantage for each reward of each group. For a reward that is
// not finite it returns an error that wraps ErrReward and names group and sample.
func (n Normalization) Advantages(groups [][]float64) ([][]float64, error) {
	for g, rewards := range groups {
		for i, r := range rewards {
			if !finite(r) {
				return nil, fmt.Errorf("%w: group %d sample %d is %v", ErrReward, g, i, r)
			}
		}
	}
	return n.advantages(groups, deviations{}), nil
}

// deviations are added to the deviations of the rewards. They come from other numbers
// that are divided by the same divisor. The zero value adds nothing.
type deviations struct {
	group []float64
	batch float64
}

func (d deviations) of(g int) float64 {
	if d.group == nil {
		return 0
	}
	return d.group[g]
}

func (n Normalization) advantages(groups [][]float64, beside deviations) [][]float64 {
	var all []float64
	for _, rewards := range groups {
		all = append(all, rewards...)
	}
	batch := newMoments(all, beside.batch)
	out := make([][]float64, len(groups))
	for g, rewards := range groups {
		out[g] = make([]float64, len(rewards))
		if n.Mean == Group && constant(rewards) {
			continue
		}
		group := newMoments(rewards, beside.of(g))
		divisor := n.divisor(group, batch)
		for i, r := range rewards {
			out[g][i] = scaled(n.centred(r, len(rewards), group, batch), divisor)
		}
	}
	return out
}

// centred returns one reward of a group of count, less its baseline.
func (n Normalization) centred(r float64, count int, group, batch moments) float64 {
	switch {
	case n.Mean == Group && n.LeaveOneOut && count > 1:
		return r - (group.mean*float64(count)-r)/float64(count-1)
	case n.Mean == Group:
		return r - group.mean
	case n.Mean == Batch:
		return r - batch.mean
	case n.Mean == Running:
		return r - n.baseline
	}
	return r
}

// divisor returns the number that divides the differences; 0 means that all of them
// become 0.
func (n Normalization) divisor(group, batch moments) float64 {
	switch {
	case n.Std == Group:
		return group.std + stdEpsilon
	case n.Std == Batch:
		return batch.std + stdEpsilon
	case n.Std == ByMean && n.Mean == Batch:
		return batch.byMean()
	case n.Std == ByMean:
		return group.byMean()
	}
	return 1
}

// byMean returns the mean, or 0 if it is too small to divide by.
func (m moments) byMean() float64 {
	if m.mean < meanFloor*m.largest {
		return 0
	}
	return m.mean
}

func scaled(a, divisor float64) float64 {
	if divisor == 0 {
		return 0
	}
	return a / divisor
}

// Varies reports whether a group can teach anything relative to its own mean.
func Varies(rewards []float64) bool { return !constant(rewards) }

// rounding is the largest difference, relative to the larger number, between rewards that
// count as equal: sums of the same parts in another order differ by less.
const rounding = 1e-12

// Equal reports whether two rewards are equal but for rounding.
func Equal(a, b float64) bool {
	return a == b || math.Abs(a-b) <= rounding*math.Max(math.Abs(a), math.Abs(b))
}

func constant(x []float64) bool {
	for _, v := range x {
		if !Equal(v, x[0]) {
			return false
		}
	}
	return true
}

// moments are the mean, the unbiased deviation (0 for fewer than two numbers) and the
// largest magnitude of some numbers.
type moments struct{ mean, std, largest float64 }

// newMoments returns the moments of x. It adds beside to the deviation.
func newMoments(x []float64, beside float64) moments {
	if len(x) == 0 {
		return moments{std: beside}
	}
	mean, squares, largest := 0.0, 0.0, 0.0
	for _, v := range x {
		mean += v
		largest = math.Max(largest, math.Abs(v))
	}
	mean /= float64(len(x))
	if len(x) < 2 {
		return moments{mean, beside, largest}
	}
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	return moments{mean, math.Sqrt(squares/float64(len(x)-1)) + beside, largest}
}
