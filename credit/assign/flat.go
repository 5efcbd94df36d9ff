package assign

import (
	"errors"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// Flat tells of each group whether it teaches nothing: all advantages that its
// trained tokens would get are 0, also where it has no such token. It is for credit
// that compares the samples of a group with each other alone, so that other groups
// have no say in it; see spec.Credit.FlatByCredit.
func Flat(s spec.Spec, groups [][]Sample) ([]bool, error) {
	out := make([]bool, len(groups))
	for g := range groups {
		trajectories, given, err := Of(s, groups[g:g+1])
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
