package assign

import (
	"fmt"

	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// Sample is one attempt of a group that counts.
type Sample struct {
	trace.Trajectory
	// Calls are the signals of each call. They are nil if the credit does not use them.
	Calls []signals.Call
	// Before is the estimated reward of the attempt before each call. It is nil if the
	// credit does not use it.
	Before []float64
	// Values are a critic's values, by call and token of its completion. They are nil
	// without a critic.
	Values [][]float32
	// Judged are a judge's scores, by call. They are nil without a judge.
	Judged []float64
	// Reference are log-probabilities under version 0, by call and token of its
	// completion. They are 0 for tokens that are not trained, and nil if the credit does
	// not use them.
	Reference [][]float32
}

// NewSample returns an attempt with the final reward that its step counts. That reward
// replaces the one on record. An attempt without a reward on record stays without one,
// and Trajectories returns an error for it.
func NewSample(t trace.Trajectory, reward float64) Sample {
	if t.Reward != nil {
		t.Reward = &reward
	}
	return Sample{Trajectory: t}
}

// SetValues sets each sample's part of a critic's values, which are in the order of
// groups and samples.
func SetValues(groups [][]Sample, v model.Values) error {
	return distribute(groups, v, func(s *Sample, calls [][]float32) { s.Values = calls })
}

// distribute calls set with each sample and its numbers, by call and token.
func distribute(groups [][]Sample, v model.Values, set func(*Sample, [][]float32)) error {
	n := 0
	for _, g := range groups {
		for i := range g {
			if n >= len(v.Calls) || len(v.Calls[n]) != len(g[i].History) {
				return fmt.Errorf("%w: version %d of %s has none for the %d calls of %s", ErrValues, v.Version, v.Policy, len(g[i].History), g[i].Address)
			}
			for k, c := range g[i].History {
				if len(v.Calls[n][k]) != len(c.Completion) {
					return fmt.Errorf("%w: version %d of %s has %d for the %d tokens of call %d of %s",
						ErrValues, v.Version, v.Policy, len(v.Calls[n][k]), len(c.Completion), k, g[i].Address)
				}
			}
			set(&g[i], v.Calls[n])
			n++
		}
	}
	if n != len(v.Calls) {
		return fmt.Errorf("%w: version %d of %s has them for %d attempts, the step has %d", ErrValues, v.Version, v.Policy, len(v.Calls), n)
	}
	return nil
}

// SetReference sets each sample's part of the log-probabilities under version 0, which
// are in the order of groups and samples.
func SetReference(groups [][]Sample, v model.Values) error {
	return distribute(groups, v, func(s *Sample, calls [][]float32) { s.Reference = calls })
}

// SetJudgments sets each sample's part of a judge's scores, which are in the order of
// groups and samples.
func SetJudgments(groups [][]Sample, j record.Judgments) error {
	n := 0
	for _, g := range groups {
		for i := range g {
			if n >= len(j.Scores) || len(j.Scores[n]) != len(g[i].History) {
				return fmt.Errorf("%w: there are none for the %d calls of %s", ErrJudgments, len(g[i].History), g[i].Address)
			}
			g[i].Judged = append([]float64{}, j.Scores[n]...)
			n++
		}
	}
	if n != len(j.Scores) {
		return fmt.Errorf("%w: they are of %d attempts, the step has %d", ErrJudgments, len(j.Scores), n)
	}
	return nil
}
