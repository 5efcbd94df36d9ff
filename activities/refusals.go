package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/trace"
)

// refusedRewards returns the refusals of rewards of an attempt.
func (r *Runner) refusedRewards(ctx context.Context, address trace.Address) ([]trace.Refusal, error) {
	all, err := r.Attempts.Refusals(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("read refusals: %w", err)
	}
	return slices.DeleteFunc(all, func(f trace.Refusal) bool { return !f.OfReward() }), nil
}

// checkSampled returns an error that ends the run if a sampler refused the settings of a
// call of the attempt: no try can help, and the agent is not to blame.
func (r *Runner) checkSampled(ctx context.Context, address trace.Address) error {
	all, err := r.Attempts.Refusals(ctx, address)
	if err != nil {
		return fmt.Errorf("read refusals: %w", err)
	}
	for _, one := range all {
		if one.Code == protocol.CodeUnsampled {
			return invalid(errors.New(one.Message))
		}
	}
	return nil
}

// addRefusals adds the calls and rewards that the gateway refused to the error of a failed
// attempt. They are often the reason, and the agent may not have reported it. They are added to
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
	var calls, rewards []string
	for _, one := range refusals {
		if one.OfReward() {
			rewards = append(rewards, one.String())
		} else {
			calls = append(calls, one.String())
		}
	}
	first, rest, _ := strings.Cut(a.Error, "\n")
	if len(calls) > 0 {
		first += "; model calls were refused: " + strings.Join(calls, ", ")
	}
	if len(rewards) > 0 {
		first += "; rewards were refused: " + strings.Join(rewards, ", ")
	}
	a.Error = strings.TrimSpace(first + "\n" + rest)
	return nil
}
