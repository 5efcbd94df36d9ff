package assign

import (
	"errors"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// FlatGroups reports which groups teach nothing: all advantages of their trained tokens
// would be 0, or they have no such token. It is for credit that compares the samples of
// a group with each other alone, so that other groups do not matter; see
// spec.Credit.FlatByCredit.
func FlatGroups(s spec.Spec, groups [][]Sample) ([]bool, error) {
	out := make([]bool, len(groups))
	for g := range groups {
		trajectories, given, err := Advantages(s, nil, groups[g:g+1])
		if errors.Is(err, ErrAgents) || errors.Is(err, credit.ErrNothingToTrain) {
			out[g] = true
			continue
		}
		if err != nil {
			return nil, err
		}
		out[g] = !given.Teaches(trajectories, 0)
	}
	return out, nil
}
