package activities

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/run/retention"
)

// Pruner removes what a rule says is no longer needed of runs that have ended. A removal
// that is interrupted is continued by the next.
type Pruner interface {
	// Prune returns what it removed. On a dry run it changes nothing, and returns what it
	// would remove.
	Prune(ctx context.Context, rule retention.PruneRule, by string, dryRun bool) (retention.PruneReport, error)
}

// PruneInput says what is removed, and who asked for it.
type PruneInput struct {
	Rule retention.PruneRule `json:"rule"`
	By   string              `json:"by"`
}

// PruneResult says what is removed. It has no list of runs, because there may be thousands.
type PruneResult struct {
	// Selected counts the runs whose names match, Ended those of them that ended long enough
	// ago, and Runs those of which something is removed.
	Selected int   `json:"selected"`
	Ended    int   `json:"ended"`
	Runs     int   `json:"runs"`
	Files    int   `json:"files"`
	Bytes    int64 `json:"bytes"` // of files and of bodies, about
	// Message says it in words.
	Message string `json:"message"`
}

// maxNamed is how many runs a message names.
const maxNamed = 10

// PlanPruning returns what PruneRuns is about to remove. It changes nothing.
func (c *Coordinator) PlanPruning(ctx context.Context, in PruneInput) (PruneResult, error) {
	return c.prune(ctx, in, true)
}

// PruneRuns removes what the rule says is no longer needed. After an interruption it
// continues, and its result has only what was left.
func (c *Coordinator) PruneRuns(ctx context.Context, in PruneInput) (PruneResult, error) {
	return c.prune(ctx, in, false)
}

func (c *Coordinator) prune(ctx context.Context, in PruneInput, dryRun bool) (_ PruneResult, err error) {
	defer temporalError(&err)
	if err := in.Rule.Check(); err != nil {
		return PruneResult{}, invalid(fmt.Errorf("rule for pruning: %w", err))
	}
	report, err := c.Pruner.Prune(ctx, in.Rule, in.By, dryRun)
	if err != nil {
		return PruneResult{}, err
	}
	out := PruneResult{Selected: report.Selected, Ended: report.Ended, Runs: len(report.Runs), Bytes: report.Bytes}
	names := make([]string, 0, maxNamed)
	for _, one := range report.Runs {
		out.Files += one.Files
		if len(names) < maxNamed {
			names = append(names, one.Run)
		}
	}
	out.Message = fmt.Sprintf("nothing to remove: of %s, %d ended longer ago than %s", readable.Count(report.Selected, "run"), report.Ended, retention.AgeText(in.Rule.OlderThan))
	if len(report.Runs) > 0 {
		more := ""
		if n := len(report.Runs) - len(names); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		out.Message = fmt.Sprintf("about %s of %s: %s%s", readable.Bytes(report.Bytes), readable.Count(len(report.Runs), "run"), strings.Join(names, ", "), more)
	}
	if n := len(report.Skipped); n > 0 {
		out.Message += fmt.Sprintf("; left out: %s", strings.Join(report.Skipped[:min(n, maxNamed)], "; "))
	}
	return out, nil
}
