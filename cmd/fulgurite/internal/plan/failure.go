package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// failurePays says where an attempt that fails by itself may get more than one that
// goes on, so that crashing is what a policy learns; empty where nothing can come to
// less than agent.failure_reward. s has its defaults.
func failurePays(s spec.Spec) string {
	failure, c := s.Agent.FailureReward, s.Credit
	var less []string
	switch least := s.Grader.Least(); {
	case failure <= least:
	case s.Grader.Minimum == nil && least == -s.Grader.Limit:
		less = append(less, fmt.Sprintf("grader.type %s may give down to %g (grader.minimum narrows it)", s.Grader.Type, least))
	default:
		less = append(less, fmt.Sprintf("grader.type %s gives down to %g", s.Grader.Type, least))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Signals)) {
		if w := c.Signals[name]; w < 0 || name == spec.SignalEmitted {
			less = append(less, fmt.Sprintf("credit.signals.%s × %g may take something", name, w))
		}
	}
	if c.FormatPenalty > 0 {
		less = append(less, fmt.Sprintf("credit.format_penalty takes %g", c.FormatPenalty))
	}
	if o := c.Overlong; o != nil {
		less = append(less, fmt.Sprintf("credit.overlong takes up to %g", o.Penalty))
	}
	if len(less) == 0 {
		return ""
	}
	return fmt.Sprintf("an agent that crashes gets agent.failure_reward %g, one that goes on may come to less, so crashing may pay: %s; lower agent.failure_reward below the worst that an attempt can earn",
		failure, strings.Join(less, ", "))
}
