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
	// GiGPO adds to it how the call did against others made in the same state.
	GiGPO Assignment = "gigpo"
	// TurnGAE estimates advantages from a critic's value of each call.
	TurnGAE Assignment = "turn_gae"
	// ValueDifference gives each call the change of estimated success that it made.
	ValueDifference Assignment = "value_difference"
	// Judge adds the judge's score of the call to it.
	Judge Assignment = "judge"
)

// Assignments lists them.
func Assignments() []Assignment {
	return []Assignment{Identical, Discounted, LastCall, GiGPO, TurnGAE, ValueDifference, Judge}
}

// ErrAssignment is wrapped when an assignment is not one of the above.
var ErrAssignment = errors.New("unknown assignment")

// Calls returns the advantage of each of n calls under Identical, Discounted and
// LastCall, which need nothing else. The others are a Plan's.
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

// share is the share of the k-th call of n in an advantage.
func (a Assignment) share(advantage float64, k, n int, discount float64) float64 {
	switch {
	case a == Discounted:
		return advantage * math.Pow(discount, float64(n-1-k))
	case a == LastCall && k != n-1:
		return 0
	}
	return advantage
}
