package credit

import (
	"errors"
	"fmt"
	"math"
)

// Assignment spreads a trajectory's advantage over its calls.
type Assignment string

// The assignments.
const (
	// Identical gives every call the trajectory's advantage.
	Identical Assignment = "identical"
	// Discounted gives the k-th call of n the advantage times discount^(n−1−k).
	Discounted Assignment = "discounted"
	// LastCall gives the last call the advantage and the others nothing.
	LastCall Assignment = "last_call"
	// GiGPO adds to the trajectory's advantage how well the call did compared with other
	// calls in the same state.
	GiGPO Assignment = "gigpo"
	// TurnGAE estimates advantages from a critic's value of each call.
	TurnGAE Assignment = "turn_gae"
	// ValueDifference gives each call its own reward and the change of the estimated
	// reward that the call made.
	ValueDifference Assignment = "value_difference"
	// Judge adds the judge's score of the call to the trajectory's advantage.
	Judge Assignment = "judge"
)

// Assignments returns all assignments.
func Assignments() []Assignment {
	return []Assignment{Identical, Discounted, LastCall, GiGPO, TurnGAE, ValueDifference, Judge}
}

// ErrAssignment is wrapped when an assignment is not one of the above.
var ErrAssignment = errors.New("unknown assignment")

// Calls returns the advantage of each of n calls under Identical, Discounted or LastCall,
// which need only the trajectory's advantage. The other assignments need a Plan.
func (a Assignment) Calls(advantage float64, n int, discount float64) ([]float64, error) {
	if a != Identical && a != Discounted && a != LastCall {
		return nil, fmt.Errorf("%w %q", ErrAssignment, a)
	}
	out := make([]float64, n)
	for k := range out {
		out[k] = a.share(advantage, k, n, discount)
	}
	return out, nil
}

// share returns the advantage of the k-th call of n.
func (a Assignment) share(advantage float64, k, n int, discount float64) float64 {
	switch {
	case a == Discounted:
		return advantage * math.Pow(discount, float64(n-1-k))
	case a == LastCall && k != n-1:
		return 0
	}
	return advantage
}
