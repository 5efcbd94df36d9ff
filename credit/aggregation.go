package credit

// Aggregation says how token losses become one number.
type Aggregation string

// The aggregations.
const (
	// TokenMean weighs every trained token of the batch alike (DAPO).
	TokenMean Aggregation = "token_mean"
	// SequenceMean takes the mean over each trajectory's trained tokens first,
	// then over trajectories (the original GRPO).
	SequenceMean Aggregation = "sequence_mean"
)

// Denominators are counted over the whole batch before any mask.
type Denominators struct {
	// Trajectory is the number of trained tokens of each trajectory.
	Trajectory []int
}

// Weight is the weight of one trained token of trajectory i.
func (d Denominators) Weight(a Aggregation, i int) float64 {
	if a == SequenceMean {
		return 1 / (float64(d.Trajectory[i]) * float64(d.nonEmpty()))
	}
	return 1 / float64(d.Tokens())
}

// Tokens is the number of trained tokens of the batch.
func (d Denominators) Tokens() int {
	n := 0
	for _, t := range d.Trajectory {
		n += t
	}
	return n
}

func (d Denominators) nonEmpty() int {
	n := 0
	for _, t := range d.Trajectory {
		if t > 0 {
			n++
		}
	}
	return n
}
