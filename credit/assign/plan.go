package assign

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// Of gives the samples their credit, by group and sample. They hold what Observes and
// Estimates ask for, and a critic's values or a judge's scores where the credit is
// made of them.
func Of(s spec.Spec, groups [][]Sample) ([][]credit.Trajectory, credit.Advantages, error) {
	return Continue(s, nil, groups)
}

// Continue is Of for a credit with running baselines: those that there were after the
// step before.
func Continue(s spec.Spec, baselines map[string]float64, groups [][]Sample) ([][]credit.Trajectory, credit.Advantages, error) {
	trajectories, err := Trajectories(s, groups)
	if err != nil {
		return nil, credit.Advantages{}, err
	}
	for _, g := range groups {
		for _, one := range g {
			if err := one.complete(s.Credit); err != nil {
				return nil, credit.Advantages{}, err
			}
		}
	}
	plan := s.Credit.Plan()
	plan.Baselines = baselines
	given, err := plan.Advantages(trajectories)
	return trajectories, given, err
}

// complete is an error if a sample lacks what the credit is made of and package
// credit would take for zeros.
func (s Sample) complete(c spec.Credit) error {
	switch {
	case Estimates(c) && s.Before == nil:
		return fmt.Errorf("%w: nothing was learned for the calls of %s", credit.ErrEstimate, s.Address)
	case c.KLInReward != nil && s.Reference == nil:
		return fmt.Errorf("%w: version 0 has not scored the calls of %s", credit.ErrEstimate, s.Address)
	case c.Assignment == credit.Judge && s.Judged == nil:
		return fmt.Errorf("%w: no judge has scored the calls of %s", credit.ErrEstimate, s.Address)
	}
	return nil
}
