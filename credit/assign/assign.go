// Package assign computes the credit of the attempts of a step. From records it makes the
// trajectories that package credit computes with, and from a spec it makes the plan.
//
// Both the training of a step and the later comparison of settings (package compare) use
// it. So a comparison shows what a run was trained on, and what it would have been
// trained on under another spec. The arithmetic is in package credit; package signals
// reads what single calls did. Nothing in this package writes.
//
// Equal records and an equal spec give equal numbers to the bit. An attempt that can't be
// given credit is an error that names the attempt and wraps a sentinel of package credit
// or of this package. It is never silently left out.
package assign

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// LearnedSteps is the number of earlier steps from which a step's estimates are learned,
// too. Outcomes under even older policies tell little.
const LearnedSteps = 4

// Attempts are the records of attempts.
type Attempts interface {
	Trajectories(ctx context.Context, addresses []record.Address) ([]record.Trajectory, error)
	// Exchanges reads the calls of an attempt with their bodies.
	Exchanges(ctx context.Context, a record.Address) ([]record.Exchange, error)
	Spans(ctx context.Context, a record.Address) ([]record.Span, error)
	Events(ctx context.Context, a record.Address) ([]record.Event, error)
}

// Batches reads the records of the batches of earlier steps.
type Batches interface {
	Batch(ctx context.Context, run, policy string, step int) (record.Batch, error)
}

// Blobs has content by its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Source reads the records of one policy of a run.
type Source struct {
	Attempts    Attempts
	Batches     Batches
	Blobs       Blobs
	Run, Policy string
}

// Step reads the attempts that a step was trained on, and its batch. Groups that were left
// out of the batch are empty.
func (s Source) Step(ctx context.Context, step int) ([][]Sample, model.Batch, error) {
	b, err := s.batch(ctx, step)
	if err != nil {
		return nil, b, err
	}
	addresses := make([]record.Address, len(b.Trajectories))
	last := -1
	for i, t := range b.Trajectories {
		if addresses[i], err = record.ParseAddress(t.Attempt); err != nil {
			return nil, b, fmt.Errorf("batch of step %d of %s: %w", step, s.Run, err)
		}
		last = max(last, t.Group)
	}
	trajectories, err := s.Attempts.Trajectories(ctx, addresses)
	if err != nil {
		return nil, b, fmt.Errorf("read the trajectories of step %d: %w", step, err)
	}
	groups := make([][]Sample, last+1)
	for i, t := range b.Trajectories {
		if t.LeftOut != "" {
			continue
		}
		groups[t.Group] = append(groups[t.Group], NewSample(trajectories[i], t.Reward))
	}
	return groups, b, nil
}

// batch returns the batch of a step.
func (s Source) batch(ctx context.Context, step int) (model.Batch, error) {
	entry, err := s.Batches.Batch(ctx, s.Run, s.Policy, step)
	if err != nil {
		return model.Batch{}, err
	}
	data, err := s.Blobs.Get(ctx, entry.Digest)
	if err != nil {
		return model.Batch{}, fmt.Errorf("read the batch of step %d of %s: %w", step, s.Run, err)
	}
	b, err := hf.DecodeBatch(data)
	if err != nil {
		return b, fmt.Errorf("batch %s of step %d of %s: %w", entry.Digest, step, s.Run, err)
	}
	return b, nil
}

// Earlier reads the groups of the steps before one, from which its estimates are
// learned too.
func (s Source) Earlier(ctx context.Context, step int) ([][]Sample, error) {
	var all [][]Sample
	for k := max(1, step-LearnedSteps); k < step; k++ {
		groups, _, err := s.Step(ctx, k)
		if err == nil {
			err = s.Observe(ctx, groups)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, groups...)
	}
	return all, nil
}

// Baselines returns the running baselines before a step, from the batch of the step
// before. It returns nil if the credit has none, and for the first step.
func (s Source) Baselines(ctx context.Context, of spec.Spec, step int) (map[string]float64, error) {
	running := slices.ContainsFunc(of.TrainedSpecs(), func(one spec.Spec) bool { return one.Credit.Mean == credit.Running })
	if !running || step <= 1 {
		return nil, nil
	}
	b, err := s.batch(ctx, step-1)
	if err != nil {
		return nil, fmt.Errorf("read the running baselines: %w", err)
	}
	return b.Baselines, nil
}

// Observe reads the signals of each sample's calls. For a long attempt that takes a
// millisecond or more, so it reads several attempts at once.
func (s Source) Observe(ctx context.Context, groups [][]Sample) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(runtime.GOMAXPROCS(0))
	for _, g := range groups {
		for i := range g {
			all.Go(func() error { return s.observe(ctx, &g[i]) })
		}
	}
	return all.Wait()
}

func (s Source) observe(ctx context.Context, one *Sample) error {
	history, err := s.Attempts.Exchanges(ctx, one.Address)
	if err != nil {
		return err
	}
	spans, err := s.Attempts.Spans(ctx, one.Address)
	if err != nil {
		return fmt.Errorf("read spans of %s: %w", one.Address, err)
	}
	events, err := s.Attempts.Events(ctx, one.Address)
	if err != nil {
		return fmt.Errorf("read events of %s: %w", one.Address, err)
	}
	one.Calls = signals.Of(signals.Attempt{Attempt: one.Attempt, History: history, Rewards: one.Rewards, Spans: spans, Events: events})
	return nil
}

// Sample is one attempt of a group that counts.
type Sample struct {
	record.Trajectory
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
func NewSample(t record.Trajectory, reward float64) Sample {
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
