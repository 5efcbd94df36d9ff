package credit

// Aggregation names how token losses become one number.
type Aggregation string

// The aggregations.
const (
	// TokenMean weighs every trained token of the batch alike (DAPO).
	TokenMean Aggregation = "token_mean"
	// SequenceMean takes the mean over each trajectory's trained tokens first,
	// then over trajectories (the original GRPO).
	SequenceMean Aggregation = "sequence_mean"
	// Constant divides each trajectory's sum by one constant, then takes the mean over
	// trajectories (Dr. GRPO, arXiv:2503.20783). Dividing by the trajectory's own length
	// would make long failures cheap.
	Constant Aggregation = "constant"
)

// Denominators has the counts that losses are divided by. They cover the whole batch,
// before any mask or rejection. A trajectory without a trained token does not count.
type Denominators struct {
	// Trajectory is the number of trained tokens of each trajectory.
	Trajectory []int
	// Length is the constant that the aggregation Constant divides by.
	Length int
}

// Weight returns the weight of one trained token of trajectory i.
func (d Denominators) Weight(a Aggregation, i int) float64 {
	switch a {
	case SequenceMean:
		return 1 / (float64(d.Trajectory[i]) * float64(d.nonEmpty()))
	case Constant:
		return 1 / (float64(d.Length) * float64(d.nonEmpty()))
	}
	return 1 / float64(d.Tokens())
}

// Tokens returns the number of trained tokens of the batch.
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
