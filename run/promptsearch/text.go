package promptsearch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/spec"
)

// EndText says why a search ended. purpose is the part of the budget that ran out, with
// search.EndBudget.
func EndText(reason search.Reason, purpose search.Purpose) string {
	switch reason {
	case search.EndBudget:
		return fmt.Sprintf("the rest of optimizer.budget.%s does not cover what it needs next", purpose)
	case search.EndNoProgress:
		return "no better candidate was found for as long as optimizer.patience allows"
	case search.EndSolved:
		return "the best candidate has the perfect score on every validation task"
	case search.EndRounds:
		return "all rounds are done"
	case search.EndStopped:
		return "it was asked to end"
	case search.EndUnmeasured:
		return "the first texts got a score on no validation task"
	}
	return string(reason)
}

// SpentText says what a search has spent of its budget, by purpose.
func SpentText(spent search.Budget, of spec.OptimizerBudget) string {
	return fmt.Sprintf("%d of %s on minibatches, %d of %d on validations, %d of %s to the reflector",
		spent.Minibatch, readable.Count(of.Minibatch, "rollout"), spent.Validation, of.Validation,
		spent.Reflections, readable.Count(of.Reflections, "request"))
}

// RefusalsText lists how many replies were refused, by reason; empty if none was.
func RefusalsText(counts map[search.Refusal]int) string {
	var out []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if counts[reason] > 0 {
			out = append(out, fmt.Sprintf("%s %d", reason, counts[reason]))
		}
	}
	return strings.Join(out, ", ")
}
