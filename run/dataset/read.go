package dataset

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrRecords is wrapped when a batch was not made from the calls on record.
var ErrRecords = errors.New("batch and calls disagree")

// Store is the part of a store that a dataset reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error)
	Exchanges(ctx context.Context, address trace.Address) ([]trace.Exchange, error)
	Spans(ctx context.Context, address trace.Address) ([]trace.Span, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Source is a policy of a run on record.
type Source struct {
	Store       Store
	Blobs       Blobs
	Run, Policy string
}

// Sequences calls yield with each row of each batch.
func (s Source) Sequences(ctx context.Context, yield func(Sequence) error) error {
	return s.batches(ctx, func(digest string, b model.Batch, attempts []attempt) error {
		places := make([]int, len(b.Trajectories)) // rows of each trajectory so far
		for _, r := range b.Rows {
			a := attempts[r.Trajectory]
			row, err := sequence(s.Run, digest, b, r, a, a.rows[places[r.Trajectory]])
			if err != nil {
				return err
			}
			places[r.Trajectory]++
			if err := yield(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// Transitions calls yield with each call of each trajectory of each batch.
func (s Source) Transitions(ctx context.Context, yield func(Transition) error) error {
	return s.batches(ctx, func(_ string, b model.Batch, attempts []attempt) error {
		for i, a := range attempts {
			spans, err := s.Store.Spans(ctx, a.Address)
			if err != nil {
				return fmt.Errorf("read the spans of %s: %w", a.Address, err)
			}
			history, err := s.Store.Exchanges(ctx, a.Address)
			if err != nil {
				return err
			}
			names := attribution.Of(history, spans, a.Terms.Ignore)
			for k, c := range history {
				row, err := transition(b, b.Trajectories[i], c, names[k], a, a.trained[k])
				if err != nil {
					return err
				}
				row.Last = k == len(a.History)-1
				if err := yield(row); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s Source) batches(ctx context.Context, use func(digest string, b model.Batch, attempts []attempt) error) error {
	run, err := s.Store.Run(ctx, s.Run)
	if err != nil {
		return fmt.Errorf("read run %s: %w", s.Run, err)
	}
	of, err := spec.Stored(run.Spec)
	if err != nil {
		return fmt.Errorf("decode the spec of run %s: %w", s.Run, err)
	}
	list, err := s.Store.Batches(ctx, s.Run, s.Policy)
	if err != nil {
		return fmt.Errorf("list batches of %s: %w", s.Run, err)
	}
	for _, entry := range list {
		file, err := s.Blobs.Get(ctx, entry.Digest)
		if err != nil {
			return fmt.Errorf("read the batch of step %d: %w", entry.Step, err)
		}
		b, err := hf.DecodeBatch(file)
		if err != nil {
			return fmt.Errorf("batch of step %d (%s): %w", entry.Step, entry.Digest, err)
		}
		attempts, err := s.attempts(ctx, of, b)
		if err != nil {
			return fmt.Errorf("batch of step %d (%s): %w", entry.Step, entry.Digest, err)
		}
		if err := use(entry.Digest, b, attempts); err != nil {
			return err
		}
	}
	return nil
}

// attempts returns the records of each trajectory of a batch.
func (s Source) attempts(ctx context.Context, of spec.Spec, b model.Batch) ([]attempt, error) {
	addresses := make([]trace.Address, len(b.Trajectories))
	for i, t := range b.Trajectories {
		var err error
		if addresses[i], err = trace.ParseAddress(t.Attempt); err != nil {
			return nil, err
		}
	}
	trajectories, err := s.Store.Trajectories(ctx, addresses)
	if err != nil {
		return nil, fmt.Errorf("read its trajectories: %w", err)
	}
	rows := make([][]model.BatchRow, len(trajectories))
	for _, r := range b.Rows {
		rows[r.Trajectory] = append(rows[r.Trajectory], r)
	}
	out := make([]attempt, len(trajectories))
	for i, t := range trajectories {
		if out[i], err = join(t, rows[i]); err != nil {
			return nil, fmt.Errorf("attempt %s: %w", t.Address, err)
		}
		if err := out[i].addRewards(of, b.Trajectories[i].Reward); err != nil {
			return nil, err
		}
	}
	return out, nil
}
