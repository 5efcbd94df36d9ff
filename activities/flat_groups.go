package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/credit/assign"
)

// FlatGroups tells which groups would get no advantage, so that others may take their
// places. It assigns them their credit by the code that AssignCredit has, from the
// same records, and writes nothing. Its answer is in the history of the run, where a
// span that arrives later does not change it.
func (c *Coordinator) FlatGroups(ctx context.Context, in FlatGroupsInput) (_ FlatGroupsResult, err error) {
	defer temporalError(&err)
	run, err := c.Runs.Run(ctx, in.Run)
	if err != nil {
		return FlatGroupsResult{}, fmt.Errorf("read run %s: %w", in.Run, err)
	}
	s, err := decodeSpec(run)
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
