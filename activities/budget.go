package activities

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/spec"
)

// CheckBudgetInput asks whether a run has used up a budget.
type CheckBudgetInput struct {
	Run    string      `json:"run"`
	Budget spec.Budget `json:"budget"`
}

// CheckBudgetResult says which part of the budget is used up, in words; empty if none is.
type CheckBudgetResult struct {
	UsedUp string `json:"used_up,omitempty"`
}

// CheckBudget compares what a run has on record with its budget.
func (c *Coordinator) CheckBudget(ctx context.Context, in CheckBudgetInput) (_ CheckBudgetResult, err error) {
	defer temporalError(&err)
	run, err := c.Runs.Run(ctx, in.Run)
	if err != nil {
		return CheckBudgetResult{}, fmt.Errorf("read run %s: %w", in.Run, err)
	}
	spent, err := c.Ledger.Spent(ctx, in.Run)
	if err != nil {
		return CheckBudgetResult{}, err
	}
	hours, b := time.Since(run.Created).Hours(), in.Budget
	used := func(key, used, limit string) (CheckBudgetResult, error) {
		return CheckBudgetResult{fmt.Sprintf("%s is used up, %s of %s", key, used, limit)}, nil
	}
	switch {
	case b.Tokens > 0 && spent.Tokens >= b.Tokens:
		return used(spec.KeyBudgetTokens, strconv.Itoa(spent.Tokens), strconv.Itoa(b.Tokens))
	case b.Calls > 0 && spent.Calls >= b.Calls:
		return used(spec.KeyBudgetCalls, strconv.Itoa(spent.Calls), strconv.Itoa(b.Calls))
	case b.Hours > 0 && hours >= b.Hours:
		return used(spec.KeyBudgetHours, strconv.FormatFloat(hours, 'f', 2, 64), strconv.FormatFloat(b.Hours, 'g', -1, 64))
	}
	return CheckBudgetResult{}, nil
}
