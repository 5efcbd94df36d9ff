package dataset

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// Store is what a dataset is read from.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error)
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
	return s.batches(ctx, func(digest string, b model.Batch) error {
		for _, r := range b.Rows {
			if err := yield(sequence(s.Run, digest, b, r)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Transitions calls yield with each call of each trajectory of each batch.
func (s Source) Transitions(ctx context.Context, yield func(Transition) error) error {
	return s.batches(ctx, func(_ string, b model.Batch) error {
		addresses := make([]trace.Address, len(b.Trajectories))
		for i, t := range b.Trajectories {
			var err error
			if addresses[i], err = trace.ParseAddress(t.Attempt); err != nil {
				return err
			}
		}
		trajectories, err := s.Store.Trajectories(ctx, addresses)
		if err != nil {
			return fmt.Errorf("read the trajectories of step %d: %w", b.Step, err)
		}
		advantages := perCall(b)
		for i, t := range trajectories {
			for k, c := range t.History {
				if err := yield(transition(b, b.Trajectories[i], c, advantages[i][int32(c.Seq)], k == len(t.History)-1)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// perCall finds the advantage of each call of each trajectory among the tokens that
// it sampled.
func perCall(b model.Batch) []map[int32]float32 {
	out := make([]map[int32]float32, len(b.Trajectories))
	for i := range out {
		out[i] = map[int32]float32{}
	}
	for _, r := range b.Rows {
		for i, call := range r.Calls {
			if call >= 0 && r.Sampled[i] {
				out[r.Trajectory][call] = r.Advantages[i]
			}
		}
	}
	return out
}

func (s Source) batches(ctx context.Context, use func(digest string, b model.Batch) error) error {
	if _, err := s.Store.Run(ctx, s.Run); err != nil {
		return fmt.Errorf("read run %s: %w", s.Run, err)
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
		if err := use(entry.Digest, b); err != nil {
			return err
		}
	}
	return nil
}
