package activities_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/run/retention"
)

// pruner removes nothing, and reports that it did.
type pruner struct {
	report  retention.PruneReport
	err     error
	dryRuns []bool
}

func (p *pruner) Prune(_ context.Context, _ retention.PruneRule, _ string, dryRun bool) (retention.PruneReport, error) {
	p.dryRuns = append(p.dryRuns, dryRun)
	return p.report, p.err
}

func TestAPruningNamesFewRunsAndCountsAll(t *testing.T) {
	t.Parallel()
	p := &pruner{report: retention.PruneReport{Selected: 20, Ended: 14, Bytes: 3 << 20, Skipped: []string{"run x starts from y@2"}}}
	for i := range 12 {
		p.report.Runs = append(p.report.Runs, retention.PrunedRun{Run: fmt.Sprintf("r%d", i), Files: 2})
	}
	c := &activities.Coordinator{Pruner: p}
	in := activities.PruneInput{Rule: retention.PruneRule{Runs: "r*", OlderThan: 48 * time.Hour, Records: true}, By: "me"}
	plan, err := c.PlanPruning(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, activities.PruneResult{
		Selected: 20, Ended: 14, Runs: 12, Files: 24, Bytes: 3 << 20,
		Message: "about 3.0 MiB of 12 runs: r0, r1, r2, r3, r4, r5, r6, r7, r8, r9 and 2 more; left out: run x starts from y@2",
	}, plan)
	done, err := c.PruneRuns(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, plan, done)
	require.Equal(t, []bool{true, false}, p.dryRuns)

	p.report = retention.PruneReport{Selected: 3, Ended: 1}
	plan, err = c.PlanPruning(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, "nothing to remove: of 3 runs, 1 ended longer ago than 2d", plan.Message)
}

func TestAPruningIsTriedAgainUnlessItsRuleIsNone(t *testing.T) {
	t.Parallel()
	p := &pruner{err: errors.New("the store is away")}
	c := &activities.Coordinator{Pruner: p}
	_, err := c.PruneRuns(t.Context(), activities.PruneInput{Rule: retention.PruneRule{Runs: "*", Records: true}})
	require.ErrorIs(t, err, p.err)
	_, err = c.PruneRuns(t.Context(), activities.PruneInput{Rule: retention.PruneRule{Runs: "[", Records: true}})
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, activities.ErrTypeInvalid, failure.Type())
	require.Len(t, p.dryRuns, 1, "nothing is asked for by a rule that is none")
}
