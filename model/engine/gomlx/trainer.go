package gomlx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/fulgurite/fulgurite/model"
)

// errClosed is the error of a closed trainer or decoder.
var errClosed = errors.New("closed")

// trainer implements model.Trainer.
type trainer struct {
	graphs  *graphs
	limit   int // tokens of one graph
	updates int
	// state holds weights, means and variances, in this order. Graphs borrow it, except
	// that adamw replaces it.
	state []*tensors.Tensor
	// broken is the reason why the trainer can't continue; nil if it can.
	broken error
}

func newTrainer(g *graphs, c model.Checkpoint, limit int) (*trainer, error) {
	t := &trainer{graphs: g, limit: limit, updates: c.Updates}
	for _, w := range []model.Weights{c.Weights, c.Mean, c.Variance} {
		ts, err := upload(w)
		if err != nil {
			return nil, err
		}
		t.state = append(t.state, ts...)
	}
	return t, nil
}

func (t *trainer) weights() []*tensors.Tensor { return t.state[:t.graphs.n] }

// Score implements model.Trainer.
func (t *trainer) Score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	if t.broken != nil {
		return nil, nil, fmt.Errorf("score: %w", t.broken)
	}
	groups, err := pad(t.graphs.arch, rows, t.limit)
	if err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	logprobs, entropies = make([][]float32, len(rows)), make([][]float32, len(rows))
	for i := range rows {
		logprobs[i], entropies[i] = []float32{}, []float32{}
	}
	for _, p := range groups {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		lp, ent, err := t.score(p)
		if err != nil {
			return nil, nil, fmt.Errorf("score: %w", err)
		}
		for k, i := range p.rows {
			from, to := k*p.s, k*p.s+len(rows[i].Tokens)-1
			logprobs[i], entropies[i] = lp[from:to:to], ent[from:to:to]
		}
	}
	return logprobs, entropies, nil
}

func (t *trainer) score(p padded) (logprobs, entropies []float32, err error) {
	in, err := p.inputs(t.graphs.rotary)
	if err != nil {
		return nil, nil, err
	}
	out, err := t.graphs.call(t.graphs.score, append(lend(t.weights()), in...)...)
	if err != nil {
		return nil, nil, err
	}
	if logprobs, err = hostCopy[float32](out[0]); err != nil {
		return nil, nil, err
	}
	entropies, err = hostCopy[float32](out[1])
	return logprobs, entropies, err
}

// Update implements model.Trainer.
func (t *trainer) Update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	if t.broken != nil {
		return 0, fmt.Errorf("update: %w", t.broken)
	}
	if err := opt.Check(); err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	groups, err := pad(t.graphs.arch, rows, t.limit)
	if err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	sums, err := upload(t.graphs.arch.Zeros())
	if err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	defer func() { free(sums) }()
	for i, r := range rows {
		if len(r.Tokens) == 1 { // in no group, but the objective sees every row
			objective(i, nil, nil, nil, nil)
		}
	}
	for _, p := range groups {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if sums, err = t.accumulate(p, rows, objective, sums); err != nil {
			return 0, fmt.Errorf("update: %w", err)
		}
	}
	norm, err := t.norm(sums)
	if err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return 0, model.ErrDiverged
	}
	if err := t.apply(sums, norm, opt); err != nil {
		return 0, fmt.Errorf("update: %w", err)
	}
	return norm, nil
}

// accumulate adds the gradient of p's rows to sums, which it consumes.
func (t *trainer) accumulate(p padded, rows []model.Row, objective model.Objective, sums []*tensors.Tensor) ([]*tensors.Tensor, error) {
	logprobs, entropies, err := t.score(p)
	if err != nil {
		return sums, err
	}
	byLogprob, byEntropy := make([]float32, p.b*p.s), make([]float32, p.b*p.s)
	for k, i := range p.rows {
		from, to := k*p.s, k*p.s+len(rows[i].Tokens)-1
		objective(i, logprobs[from:to:to], entropies[from:to:to], byLogprob[from:to:to], byEntropy[from:to:to])
	}
	in, err := p.inputs(t.graphs.rotary)
	if err != nil {
		return sums, err
	}
	donated, err := t.graphs.donate(sums)
	if err != nil {
		return sums, err
	}
	in = append(append(lend(t.weights()), donated...), in...)
	in = append(in, tensors.FromFlatDataAndDimensions(byLogprob, p.b, p.s), tensors.FromFlatDataAndDimensions(byEntropy, p.b, p.s))
	return t.graphs.call(t.graphs.gradient, in...)
}

func (t *trainer) norm(gradient []*tensors.Tensor) (float64, error) {
	out, err := t.graphs.call(t.graphs.norm, lend(gradient)...)
	if err != nil {
		return 0, err
	}
	squared, err := hostCopy[float64](out[0])
	if err != nil {
		return 0, err
	}
	return math.Sqrt(squared[0]), nil
}

// apply makes the optimizer's update. It consumes the state, so an error in here
// breaks the trainer.
func (t *trainer) apply(gradient []*tensors.Tensor, norm float64, opt model.AdamW) error {
	values := make([]float32, numbers)
	step := float64(t.updates + 1)
	for i, x := range map[int]float64{
		scale: 1, beta1: opt.Beta1, oneMinusBeta1: 1 - opt.Beta1, beta2: opt.Beta2, oneMinusBeta2: 1 - opt.Beta2,
		correction1: 1 - math.Pow(opt.Beta1, step), correction2: 1 - math.Pow(opt.Beta2, step),
		epsilon: opt.Epsilon, learningRate: opt.LearningRate, decay: opt.WeightDecay,
	} {
		values[i] = float32(x)
	}
	if opt.ClipNorm > 0 && norm > opt.ClipNorm {
		values[scale] = float32(opt.ClipNorm / norm)
	}
	in, err := t.graphs.donate(slices.Concat(t.state, gradient))
	if err == nil {
		in = append(in, tensors.FromFlatDataAndDimensions(values, numbers))
		t.state, err = t.graphs.call(t.graphs.adamw, in...)
	}
	if err != nil {
		t.broken = fmt.Errorf("an earlier update was interrupted: %w", err)
		return err
	}
	t.updates++
	return nil
}

// Checkpoint implements model.Trainer. The interface has no error to return, so
// it panics when the trainer is closed or broken or the device cannot be read:
// a checkpoint that is not the present state must never be stored.
func (t *trainer) Checkpoint() model.Checkpoint {
	if t.broken != nil {
		panic(fmt.Errorf("checkpoint: %w", t.broken))
	}
	c := model.Checkpoint{Architecture: t.graphs.arch, Updates: t.updates}
	for i, w := range []*model.Weights{&c.Weights, &c.Mean, &c.Variance} {
		var err error
		if *w, err = download(c.Architecture, t.state[i*t.graphs.n:(i+1)*t.graphs.n]); err != nil {
			panic(fmt.Errorf("checkpoint: %w", err))
		}
	}
	return c
}

// Close implements model.Trainer.
func (t *trainer) Close() {
	free(t.state)
	t.state, t.broken = nil, errClosed
}

// critic implements model.Critic: a trainer whose graphs return values in place of a
// policy's log-probabilities.
type critic struct{ *trainer }

// Values implements model.Critic.
func (c critic) Values(ctx context.Context, rows []model.Row) ([][]float32, error) {
	values, _, err := c.Score(ctx, rows)
	return values, err
}

// Update implements model.Critic.
func (c critic) Update(ctx context.Context, rows []model.Row, objective model.ValueObjective, opt model.AdamW) (float64, error) {
	return c.trainer.Update(ctx, rows, func(row int, values, _, gradient, _ []float32) {
		objective(row, values, gradient)
	}, opt)
}
