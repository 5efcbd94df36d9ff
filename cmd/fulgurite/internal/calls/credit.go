package calls

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// credited is an attempt's part of a batch.
type credited struct {
	advantage float64
	calls     map[int]spread // by Seq; has no entry for a call that is not trained
}

// spread summarizes the advantages of a call's trained tokens.
type spread struct {
	Tokens int     `json:"tokens"` // the number of trained tokens
	Mean   float64 `json:"mean"`
	Min    float32 `json:"min"`
	Max    float32 `json:"max"`
}

func (s spread) String() string {
	if s.Min == s.Max {
		return fmt.Sprintf("%.4g", s.Mean)
	}
	return fmt.Sprintf("%.4g (from %.4g to %.4g)", s.Mean, s.Min, s.Max)
}

// batchReader finds an attempt's part of its step's batch. It keeps the last batch that
// it read.
type batchReader struct {
	db    *store.Store
	blobs *blob.Store
	step  string
	found map[string]credited // by address
}

// of returns an attempt's part of its step's batch. It returns false if the step has no
// batch, or if the attempt is not in it because it was not trained.
func (b *batchReader) of(ctx context.Context, a record.Attempt) (credited, bool, error) {
	if a.Kind != record.Train {
		return credited{}, false, nil
	}
	if step := fmt.Sprintf("%s %d", a.Run, a.Step); b.step != step {
		found, err := b.read(ctx, a)
		if err != nil {
			return credited{}, false, err
		}
		b.step, b.found = step, found
	}
	c, ok := b.found[a.Address.String()]
	return c, ok, nil
}

func (b *batchReader) read(ctx context.Context, a record.Attempt) (map[string]credited, error) {
	entry, err := b.db.Batch(ctx, a.Run, model.DefaultPolicy, a.Step)
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	file, err := b.blobs.Get(ctx, entry.Digest)
	if err != nil {
		return nil, fmt.Errorf("read the batch of step %d of %s: %w", a.Step, a.Run, err)
	}
	batch, err := hf.DecodeBatch(file)
	if err != nil {
		return nil, fmt.Errorf("batch of step %d of %s: %w", a.Step, a.Run, err)
	}
	return creditOf(batch), nil
}

func creditOf(b model.Batch) map[string]credited {
	out := map[string]credited{}
	for _, t := range b.Trajectories {
		out[t.Attempt] = credited{advantage: t.Advantage, calls: map[int]spread{}}
	}
	for _, r := range b.Rows {
		calls := out[b.Trajectories[r.Trajectory].Attempt].calls
		for i, seq := range r.Calls {
			if seq < 0 || !r.Sampled[i] {
				continue
			}
			s, known := calls[int(seq)]
			v := r.Advantages[i]
			if !known {
				s.Min, s.Max = v, v
			}
			s.Mean = (s.Mean*float64(s.Tokens) + float64(v)) / float64(s.Tokens+1)
			s.Tokens, s.Min, s.Max = s.Tokens+1, min(s.Min, v), max(s.Max, v)
			calls[int(seq)] = s
		}
	}
	return out
}
