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
)

// ErrAssignment is wrapped when an assignment is not one of the above.
var ErrAssignment = errors.New("unknown assignment")

// Calls returns the advantage of each of n calls.
func (a Assignment) Calls(advantage float64, n int, discount float64) ([]float64, error) {
	out := make([]float64, n)
	for k := range out {
		switch a {
		case Identical:
			out[k] = advantage
		case Discounted:
			out[k] = advantage * math.Pow(discount, float64(n-1-k))
		case LastCall:
			if k == n-1 {
				out[k] = advantage
			}
		default:
			return nil, fmt.Errorf("%w %q", ErrAssignment, a)
		}
	}
	return out, nil
}
