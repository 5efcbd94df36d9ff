package assign

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
)

// Advantages assigns credit to the samples, by group and sample. The samples must hold
// what NeedsSignals and NeedsEstimates ask for, and a critic's values or a judge's scores
// if the credit uses them. baselines are the running baselines after the step before;
// they are nil if the credit has none.
func Advantages(s spec.Spec, baselines map[string]float64, groups [][]Sample) ([][]credit.Trajectory, credit.Advantages, error) {
	trajectories, err := Trajectories(s, groups)
	if err != nil {
		return nil, credit.Advantages{}, err
	}
	for _, g := range groups {
		for _, one := range g {
			if err := one.check(s.Credit); err != nil {
				return nil, credit.Advantages{}, err
			}
		}
	}
	plan := s.Credit.Plan()
	plan.Baselines = baselines
	given, err := plan.Advantages(trajectories)
	return trajectories, given, err
}

// check returns an error if a sample lacks an input of the credit. Package credit would
// take missing numbers for zeros.
func (s Sample) check(c spec.Credit) error {
	switch {
	case NeedsEstimates(c) && s.Before == nil:
		return fmt.Errorf("%w: success is estimated from other groups, and fewer than two groups have calls", credit.ErrNothingToTrain)
	case c.KLInReward != nil && s.Reference == nil:
		return fmt.Errorf("%w: version 0 has not scored the calls of %s", credit.ErrEstimate, s.Address)
	case c.Assignment == credit.Judge && s.Judged == nil:
		return fmt.Errorf("%w: no judge has scored the calls of %s", credit.ErrEstimate, s.Address)
	}
	return nil
}

// NeedsSignals reports whether a credit reads the signals of single calls.
func NeedsSignals(c spec.Credit) bool {
	return len(c.Signals) > 0 || c.TrainAgents != "" || c.PerAgent || c.Assignment == credit.GiGPO || NeedsEstimates(c)
}

// NeedsEstimates reports whether a credit needs estimates learned from the run's own calls.
func NeedsEstimates(c spec.Credit) bool { return c.Assignment == credit.ValueDifference }
