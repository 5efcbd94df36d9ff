package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
)

var (
	_ model.Viewer         = (*trainer)(nil)
	_ model.OptimizerTimer = (*trainer)(nil)
	_ model.Viewer         = critic{}
)

// trainer implements model.Trainer.
type trainer struct {
	*pass
	// changes is the placement of the numbers that updates change: those of the model, or
	// of its adapter. Gradients and moments have the same layout.
	changes        *placement
	mean, variance []float32
	updates        int
	optimizing     time.Duration    // of all updates: their time after the gradients
	of             model.Checkpoint // only architecture and adapter are set
	spans          []span           // for the norm
	stretches      []stretch        // pieces that an update of a whole model changes; nil for an adapter
	shares         bool             // whether rows of an update share common prefixes

	threadPool *threadPool
	shards     []*shard    // one for each thread; a single one for a wide model
	lanes      [][]float32 // gradients; see laneLimit
	panels     [][]float32 // for each thread, memory for some columns of a panel
	held       []*memory.Floats
}

// The gradient is added up in lanes: shard i is added to lane i mod lanes, and then the
// lanes are added up in order. More lanes let more threads work at once. Their number
// depends on the architecture alone, so that the order of sums does too. A wide model has
// one lane, because its shards run one after the other.
const (
	maxLanes    = 16
	laneNumbers = 1 << 25 // in all lanes together
)

// laneLimit returns the largest number of lanes that an update uses.
func (t *trainer) laneLimit() int {
	if t.wide() {
		return 1
	}
	return min(maxLanes, max(2, laneNumbers/t.changes.size))
}

func (e *Engine) newTrainer(c model.Checkpoint) (*trainer, error) {
	if c.Updates < 0 {
		return nil, fmt.Errorf("%d updates", c.Updates)
	}
	p, err := e.newPass(c)
	if err != nil {
		return nil, err
	}
	t := &trainer{
		pass: p, changes: &p.layout.placement, updates: c.Updates,
		of:         model.Checkpoint{Architecture: c.Architecture, Adapter: c.Adapter},
		threadPool: newThreadPool(e.threads, p.wide()),
	}
	if p.adapter != nil {
		t.changes, t.shares = &p.adapter.placement, true
	} else {
		t.stretches = p.stretches()
	}
	t.spans = t.changes.spans()
	shards := e.threads
	if p.wide() {
		t.split, shards = t.threadPool, 1
	}
	for range shards {
		t.shards = append(t.shards, newShard(p))
	}
	for range e.threads {
		t.panels = append(t.panels, make([]float32, spanNumbers))
	}
	if t.mean, err = t.readMoments("means", c.Mean); err == nil {
		t.variance, err = t.readMoments("variances", c.Variance)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// readMoments returns zeros if no updates were made and no moments are given.
func (t *trainer) readMoments(kind string, w model.Weights) ([]float32, error) {
	if w == nil && t.updates == 0 {
		return t.numbers(t.changes.size), nil
	}
	if err := checkTensors(t.of, w); err != nil {
		return nil, fmt.Errorf("%s after %d updates: %w", kind, t.updates, err)
	}
	flat := t.numbers(t.changes.size)
	t.changes.read(flat, w)
	return flat, nil
}

// numbers returns n zeros that live as long as the trainer.
func (t *trainer) numbers(n int) []float32 {
	f := memory.New(n)
	t.held = append(t.held, f)
	return f.Data()
}

// run calls do for each part. Parts run on several threads, unless the threads share each
// part.
func (t *trainer) run(n int, do func(worker, part int)) {
	if t.split == nil {
		t.threadPool.run(n, do)
		return
	}
	for part := range n {
		do(0, part)
	}
}

// Close ends the trainer's goroutines and gives its memory back. The trainer must not
// be used after it.
func (t *trainer) Close() {
	t.threadPool.close()
	t.pass.free()
	for _, s := range t.shards {
		s.memory.free()
	}
	for _, f := range t.held {
		f.Free()
	}
	t.mean, t.variance, t.lanes = nil, nil, nil
}

// Checkpoint returns a copy of the state.
func (t *trainer) Checkpoint() model.Checkpoint { return t.state(t.changes.write) }

// View implements model.Viewer.
func (t *trainer) View() model.Checkpoint { return t.state(t.changes.view) }

// state returns the current state. tensors gives the numbers of a flat slice the shapes
// of w's tensors.
func (t *trainer) state(tensors func(flat []float32, w model.Weights) model.Weights) model.Checkpoint {
	c := t.of
	c.Updates = t.updates
	c.Weights = tensors(t.trained(), t.of.Tensors())
	c.Mean, c.Variance = tensors(t.mean, t.of.Tensors()), tensors(t.variance, t.of.Tensors())
	return c
}

// trained returns the numbers that updates change, in the order of changes; they are
// valid until the next update. The numbers of a whole model are packed, so trained
// unpacks them into the memory of the gradient.
func (t *trainer) trained() []float32 {
	if t.adapter != nil {
		return t.adapter.flat
	}
	flat := t.reserveLanes(1)[0]
	t.threadPool.run(len(t.stretches), func(_, i int) {
		s := t.stretches[i]
		if s.width == 0 {
			copy(flat[s.from:s.to], t.weights[s.from:s.to])
			return
		}
		in := (s.to - s.from) / s.width
		t.Transpose(flat[s.from:], in, t.weights[s.from:], s.width, in, s.width)
	})
	return flat
}

// Score implements model.Trainer.
func (t *trainer) Score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	shards, err := t.plan(rows, true)
	if err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	logprobs, entropies = make([][]float32, len(rows)), make([][]float32, len(rows))
	t.run(len(shards), func(worker, i int) {
		if ctx.Err() != nil {
			return
		}
		s := t.shards[worker]
		s.load(shards[i], false)
		s.forward()
		for _, q := range s.sequences {
			logprobs[q.Index] = append(make([]float32, 0, q.N), s.logprobs[q.answers:q.end()]...)
			entropies[q.Index] = append(make([]float32, 0, q.N), s.entropies[q.answers:q.end()]...)
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
	if err := opt.Check(); err != nil {
		return 0, err
	}
	shards, err := t.plan(rows, t.shares)
	if err != nil {
		return 0, err
	}
	if len(shards) == 0 {
		return 0, errors.New("no rows")
	}
	lanes := t.reserveLanes(min(len(shards), t.laneLimit()))
	t.run(len(lanes), func(worker, lane int) {
		clear(lanes[lane])
		for i := lane; i < len(shards); i += len(lanes) {
			if ctx.Err() != nil {
				return
			}
			s := t.shards[worker]
			s.load(shards[i], true)
			s.forward()
			if s.applyObjective(objective) { // a gradient of zeros would change no bit
				s.backward(lanes[lane])
			}
		}
	})
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	began := time.Now()
	defer func() { t.optimizing += time.Since(began) }()
	norm := t.sum(lanes)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, model.ErrDiverged
	}
	t.step(lanes[0], norm, opt)
	return norm, nil
}

// OptimizerTime implements model.OptimizerTimer.
func (t *trainer) OptimizerTime() time.Duration { return t.optimizing }

func (t *trainer) reserveLanes(n int) [][]float32 {
	for len(t.lanes) < n {
		t.lanes = append(t.lanes, t.numbers(t.changes.size))
	}
	return t.lanes[:n]
}

// plan checks rows and cuts them into shards. Callers pass share = false for the update
// of a whole model: its gradient is added up row by row.
func (t *trainer) plan(rows []model.Row, share bool) ([][]sequence, error) {
	longest := 0
	for _, r := range rows {
		longest = max(longest, len(r.Tokens))
	}
	shards, err := t.cut(rows, share)
	if err != nil {
		return nil, err
	}
	t.angles.reserve(longest)
	return shards, nil
}

func rowError(i int, err error) error { return fmt.Errorf("row %d: %w", i, err) }
