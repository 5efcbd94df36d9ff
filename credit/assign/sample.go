package assign

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// Sample is one attempt of a group that counts.
type Sample struct {
	trace.Trajectory
	// Calls is what is seen of each call; nil where the credit does without.
	Calls []signals.Call
	// Before is the estimated reward of the attempt as it looked before each call;
	// nil where the credit does without.
	Before []float64
	// Values are a critic's, by call and token of its completion; nil without one.
	Values [][]float32
	// Judged are a judge's scores, by call; nil without one.
	Judged []float64
	// Reference are log-probabilities under version 0, by call and token of its
	// completion, 0 where the token is not trained; nil where the credit does without.
	Reference [][]float32
}

// NewSample is an attempt with the final reward that its step counts. It takes the
// place of the one on record; where there is none, Trajectories refuses the attempt.
func NewSample(t trace.Trajectory, reward float64) Sample {
	if t.Reward != nil {
		t.Reward = &reward
	}
	return Sample{Trajectory: t}
}

// Attempts are what was recorded of attempts.
type Attempts interface {
	Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error)
	// Exchanges reads the calls of an attempt with their bodies.
	Exchanges(ctx context.Context, a trace.Address) ([]trace.Exchange, error)
	Spans(ctx context.Context, a trace.Address) ([]trace.Span, error)
	Events(ctx context.Context, a trace.Address) ([]trace.Event, error)
}

// Batches are what earlier steps were trained on.
type Batches interface {
	Batch(ctx context.Context, run, policy string, step int) (record.Batch, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Source is a policy of a run on record.
type Source struct {
	Attempts    Attempts
	Batches     Batches
	Blobs       Blobs
	Run, Policy string
}

// Observes reports whether a credit needs to know what calls did by themselves.
func Observes(c spec.Credit) bool {
	return len(c.Signals) > 0 || c.TrainAgents != "" || c.PerAgent || c.Assignment == credit.GiGPO || Estimates(c)
}

// Estimates reports whether a credit needs estimates learned from the run's own calls.
func Estimates(c spec.Credit) bool { return c.Assignment == credit.ValueDifference }

// Baselines are the running ones after the step before one, as its batch has them;
// nil where the credit has none, and before the first step.
func (s Source) Baselines(ctx context.Context, c spec.Credit, step int) (map[string]float64, error) {
	if c.Mean != credit.Running || step <= 1 {
		return nil, nil
	}
	b, err := s.batch(ctx, step-1)
	if err != nil {
		return nil, fmt.Errorf("read the running baselines: %w", err)
	}
	return b.Baselines, nil
}

// Observe reads what the calls of each sample did. That takes a millisecond or more
// for a long attempt, so several are read at once; of no others the bodies are in
// memory.
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

// Value gives each sample its part of a critic's values, which are in the order of
// groups and samples.
func Value(groups [][]Sample, v model.Values) error {
	return share(groups, v, func(s *Sample, calls [][]float32) { s.Values = calls })
}

// share deals out numbers by token.
func share(groups [][]Sample, v model.Values, give func(*Sample, [][]float32)) error {
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
			give(&g[i], v.Calls[n])
			n++
		}
	}
	if n != len(v.Calls) {
		return fmt.Errorf("%w: version %d of %s has them for %d attempts, the step has %d", ErrValues, v.Version, v.Policy, len(v.Calls), n)
	}
	return nil
}

// Refer gives each sample its part of the log-probabilities under version 0, which are
// in the order of groups and samples.
func Refer(groups [][]Sample, v model.Values) error {
	return share(groups, v, func(s *Sample, calls [][]float32) { s.Reference = calls })
}

// Judge gives each sample its part of what a judge thinks, which is in the order of
// groups and samples.
func Judge(groups [][]Sample, j record.Judgments) error {
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
