package activities

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/trace"
)

// addRefusals adds the calls that the gateway refused to the error of a failed attempt.
// They are often the reason, and the agent may not have reported it. They are added to
// the first line, because some places show only that line.
func (r *Runner) addRefusals(ctx context.Context, a *trace.Attempt) error {
	if a.Outcome != trace.AgentFailed {
		return nil
	}
	refusals, err := r.Attempts.Refusals(ctx, a.Address)
	if err != nil {
		return fmt.Errorf("read refusals: %w", err)
	}
	if len(refusals) == 0 {
		return nil
	}
	words := make([]string, len(refusals))
	for i, one := range refusals {
		words[i] = one.String()
	}
	first, rest, _ := strings.Cut(a.Error, "\n")
	a.Error = strings.TrimSpace(first + "; model calls were refused: " + strings.Join(words, ", ") + "\n" + rest)
	return nil
}
