package native

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
)

// trainer implements model.Trainer.
type trainer struct {
	*pass
	mean, variance []float32
	updates        int
	spans          []span

	threadPool *threadPool
	shards     []*shard    // one for each thread
	lanes      [][]float32 // gradients; see laneLimit
}

// The gradient is added up in lanes: shard i into lane i mod lanes, and then lane
// after lane. More lanes let more threads work at once; their number depends on
// the architecture alone, so that the order of sums does.
const (
	mostLanes   = 16
	laneNumbers = 1 << 25 // in all lanes together, where two lanes hold fewer
)

func (l *layout) laneLimit() int { return min(mostLanes, max(2, laneNumbers/l.size)) }

func (e *Engine) newTrainer(c model.Checkpoint) (*trainer, error) {
	if err := e.check(c.Architecture); err != nil {
		return nil, err
	}
	if err := checkWeights(c.Architecture, c.Weights); err != nil {
		return nil, err
	}
	if c.Updates < 0 {
		return nil, fmt.Errorf("%d updates", c.Updates)
	}
	l := newLayout(c.Architecture)
	t := &trainer{
		pass: &pass{
			parameters: &parameters{layout: l, flat: l.read(c.Weights), forward: make([]float32, l.size), backward: make([]float32, l.size)},
			Set:        e.kernels, angles: newRotary(l),
		},
		updates: c.Updates, spans: l.spans(),
	}
	var err error
	if t.mean, err = l.readMoments("means", c.Mean, c.Updates); err != nil {
		return nil, err
	}
	if t.variance, err = l.readMoments("variances", c.Variance, c.Updates); err != nil {
		return nil, err
	}
	t.threadPool = newThreadPool(e.threads)
	for range e.threads {
		t.shards = append(t.shards, &shard{pass: t.pass})
	}
	t.pack(t.threadPool)
	return t, nil
}

// readMoments are zero where no updates were made and none are given.
func (l *layout) readMoments(kind string, w model.Weights, updates int) ([]float32, error) {
	if w == nil && updates == 0 {
		return make([]float32, l.size), nil
	}
	if err := checkWeights(l.Architecture, w); err != nil {
		return nil, fmt.Errorf("%s after %d updates: %w", kind, updates, err)
	}
	return l.read(w), nil
}

// Close ends the trainer's goroutines. The trainer must not be used after it.
func (t *trainer) Close() { t.threadPool.close() }

// Checkpoint returns a copy of the state.
func (t *trainer) Checkpoint() model.Checkpoint {
	return model.Checkpoint{
		Architecture: t.Architecture, Weights: t.write(t.flat), Updates: t.updates,
		Mean: t.write(t.mean), Variance: t.write(t.variance),
	}
}

// Score implements model.Trainer.
func (t *trainer) Score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	shards, err := t.plan(rows)
	if err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	logprobs, entropies = make([][]float32, len(rows)), make([][]float32, len(rows))
	t.threadPool.run(len(shards), func(worker, i int) {
		if ctx.Err() != nil {
			return
		}
		s := t.shards[worker]
		s.load(shards[i])
		s.forward()
		for _, q := range s.sequences {
			logprobs[q.row] = append(make([]float32, 0, q.n), s.logprobs[q.first:q.first+q.n]...)
			entropies[q.row] = append(make([]float32, 0, q.n), s.entropies[q.first:q.first+q.n]...)
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	return logprobs, entropies, nil
}

// Update implements model.Trainer.
func (t *trainer) Update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	norm, err := t.update(ctx, rows, objective, opt)
	if err != nil {
		return norm, fmt.Errorf("update %d: %w", t.updates+1, err)
	}
	return norm, nil
}

func (t *trainer) update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	if err := checkAdamW(opt); err != nil {
		return 0, err
	}
	shards, err := t.plan(rows)
	if err != nil {
		return 0, err
	}
	if len(shards) == 0 {
		return 0, errors.New("no rows")
	}
	lanes := t.reserveLanes(min(len(shards), t.laneLimit()))
	t.threadPool.run(len(lanes), func(worker, lane int) {
		clear(lanes[lane])
		for i := lane; i < len(shards); i += len(lanes) {
			if ctx.Err() != nil {
				return
			}
			s := t.shards[worker]
			s.load(shards[i])
			s.forward()
			s.ask(objective)
			s.backward(lanes[lane])
		}
	})
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	norm := t.sum(lanes)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, model.ErrDiverged
	}
	t.step(lanes[0], norm, opt)
	return norm, nil
}

func (t *trainer) reserveLanes(n int) [][]float32 {
	for len(t.lanes) < n {
		t.lanes = append(t.lanes, make([]float32, t.size))
	}
	return t.lanes[:n]
}

// plan checks rows and cuts them into shards.
func (t *trainer) plan(rows []model.Row) ([][]sequence, error) {
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r.Tokens))
	}
	shards, err := t.cut(rows)
	if err != nil {
		return nil, err
	}
	t.angles.reserve(longest)
	return shards, nil
}

// checkRow returns the factor of the row's logits.
func (l *layout) checkRow(row model.Row) (scale float32, err error) {
	if err := checkTokens(l.Architecture, row.Tokens); err != nil {
		return 0, err
	}
	if len(row.Tokens) > l.MaxPositions {
		return 0, fmt.Errorf("%w: %d tokens, the model has %d positions", ErrRow, len(row.Tokens), l.MaxPositions)
	}
	if err := l.checkAllowed(row); err != nil {
		return 0, err
	}
	return inverseTemperature(row.Temperature)
}

// checkAllowed wants a set, or none, for each token but the first, and in it that
// token.
func (l *layout) checkAllowed(row model.Row) error {
	if row.Allowed == nil {
		return nil
	}
	if len(row.Allowed) != len(row.Tokens)-1 {
		return fmt.Errorf("%w: %d allowed sets for %d tokens, want %d", ErrRow, len(row.Allowed), len(row.Tokens), len(row.Tokens)-1)
	}
	for i, set := range row.Allowed {
		if token := row.Tokens[i+1]; set != nil && !set.Has(token) {
			return fmt.Errorf("%w: token %d is %d, which is not in the set that it was chosen from", ErrRow, i+1, token)
		}
	}
	return nil
}

func rowError(i int, err error) error { return fmt.Errorf("row %d: %w", i, err) }
