package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/credit/assign"
)

// FlatGroups reports which groups would get no advantage, so that others may replace
// them. It assigns credit with the code of AssignCredit, from the same records, and
// writes nothing. The run's history keeps the result, so a span that arrives later does
// not change it.
func (c *Coordinator) FlatGroups(ctx context.Context, in FlatGroupsInput) (_ FlatGroupsResult, err error) {
	defer temporalError(&err)
	_, s, err := readSpec(ctx, c.Runs, in.Run)
	if err != nil {
		return FlatGroupsResult{}, err
	}
	groups, err := c.samples(ctx, s, in.StepGroups)
	if err != nil {
		return FlatGroupsResult{}, fmt.Errorf("step %d of %s: %w", in.Step, in.Run, err)
	}
	flat, err := assign.FlatGroups(s, groups)
	if err != nil {
		return FlatGroupsResult{}, invalid(fmt.Errorf("groups of step %d of %s: %w", in.Step, in.Run, err))
	}
	return FlatGroupsResult{Flat: flat}, nil
}
