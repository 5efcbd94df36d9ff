package torch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
)

var (
	_ model.Trainer = (*trainer)(nil)
	_ model.Saver   = (*trainer)(nil)
)

// trainer implements model.Trainer: a model that the program holds.
type trainer struct {
	process *process
	handle  int
	tokens  int // of one pass
	updates int
	of      model.Checkpoint // architecture and adapter alone
}

// adamW is the body of the verb step.
type adamW struct {
	Rate     float32 `json:"rate"`
	Scale    float32 `json:"scale"` // of the gradient
	Epsilon  float32 `json:"epsilon"`
	Decay    float32 `json:"decay"`
	Beta1    float32 `json:"beta1"`
	Rest1    float32 `json:"rest1"`    // 1 − beta1
	Correct1 float32 `json:"correct1"` // 1 / (1 − beta1^updates)
	Beta2    float32 `json:"beta2"`
	Rest2    float32 `json:"rest2"`
	Correct2 float32 `json:"correct2"`
}

// request asks the program about this model; result, if not nil, takes the reply's.
func (t *trainer) request(ctx context.Context, verb string, body, result any, arrays ...array) error {
	_, err := t.exchange(ctx, verb, body, result, arrays...)
	return err
}

func (t *trainer) exchange(ctx context.Context, verb string, body, result any, arrays ...array) (reply, error) {
	r, err := t.process.ask(ctx, request{Verb: verb, Handle: t.handle, Body: body, Arrays: arrays})
	if err == nil && result != nil {
		if err = json.Unmarshal(r.Result, result); err != nil {
			err = fmt.Errorf("%s: %w: %w", verb, errFrame, err)
		}
	}
	return r, err
}

// Score implements model.Trainer.
func (t *trainer) Score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	logprobs, entropies, err = t.score(ctx, rows)
	if err != nil {
		return nil, nil, fmt.Errorf("score: %w", err)
	}
	return logprobs, entropies, nil
}

func (t *trainer) score(ctx context.Context, rows []model.Row) (logprobs, entropies [][]float32, err error) {
	batches, err := cut(t.of.Architecture, rows, t.tokens)
	if err != nil {
		return nil, nil, err
	}
	logprobs, entropies = make([][]float32, len(rows)), make([][]float32, len(rows))
	for i := range rows {
		logprobs[i], entropies[i] = []float32{}, []float32{}
	}
	for _, b := range batches {
		if err := t.forward(ctx, b, rows, false, logprobs, entropies); err != nil {
			return nil, nil, err
		}
		for _, i := range b.rows {
			for j, x := range logprobs[i] {
				if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
					return nil, nil, fmt.Errorf("row %d: choice %d comes out as %v: %w; if the weights are those of a published model, its type or this version of transformers is not right for it", i, j, x, ErrNotFinite)
				}
			}
		}
	}
	return logprobs, entropies, nil
}

// forward runs a batch and gives its rows what came out.
func (t *trainer) forward(ctx context.Context, b batch, rows []model.Row, train bool, logprobs, entropies [][]float32) error {
	r, err := t.exchange(ctx, "forward", map[string]bool{"train": train}, nil, b.arrays...)
	if err != nil {
		return err
	}
	if len(r.Arrays) != 2 {
		return fmt.Errorf("forward: %w: %d arrays, want 2", errFrame, len(r.Arrays))
	}
	for i, to := range [][][]float32{logprobs, entropies} {
		numbers, err := r.Arrays[i].floats(b.choices)
		if err != nil {
			return fmt.Errorf("forward: %w", err)
		}
		b.split(rows, numbers, to)
	}
	return nil
}

// Update implements model.Trainer.
func (t *trainer) Update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	norm, err := t.update(ctx, rows, objective, opt)
	if err != nil {
		if !errors.Is(err, model.ErrEngineLost) { // what has begun is given up, also if the caller has left
			err = errors.Join(err, t.request(context.WithoutCancel(ctx), "abort", nil, nil))
		}
		return norm, fmt.Errorf("update %d: %w", t.updates+1, err)
	}
	return norm, nil
}

func (t *trainer) update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	if err := checkAdamW(opt); err != nil {
		return 0, err
	}
	batches, err := cut(t.of.Architecture, rows, t.tokens)
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		return 0, errors.New("no rows")
	}
	if err := t.request(ctx, "begin_update", nil, nil); err != nil {
		return 0, err
	}
	for i, r := range rows {
		if len(r.Tokens) == 1 { // in no batch, but the objective sees every row
			objective(i, nil, nil, nil, nil)
		}
	}
	for _, b := range batches {
		if err := t.accumulate(ctx, b, rows, objective); err != nil {
			return 0, err
		}
	}
	var length struct {
		Norm *float64 `json:"norm"`
	}
	if err := t.request(ctx, "norm", nil, &length); err != nil {
		return 0, err
	}
	norm := math.NaN()
	if length.Norm != nil {
		norm = *length.Norm
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm, model.ErrDiverged
	}
	if err := t.request(ctx, "step", t.numbers(opt, norm), nil); err != nil {
		return 0, err
	}
	t.updates++
	return norm, nil
}

// accumulate adds the gradient of a batch's rows.
func (t *trainer) accumulate(ctx context.Context, b batch, rows []model.Row, objective model.Objective) error {
	logprobs, entropies := make([][]float32, len(rows)), make([][]float32, len(rows))
	if err := t.forward(ctx, b, rows, true, logprobs, entropies); err != nil {
		return err
	}
	byLogprob, byEntropy := make([]float32, b.choices), make([]float32, b.choices)
	at := 0
	for _, i := range b.rows {
		end := at + len(logprobs[i])
		objective(i, logprobs[i], entropies[i], byLogprob[at:end:end], byEntropy[at:end:end])
		at = end
	}
	return t.request(ctx, "backward", nil, nil, newArray("by_logprob", byLogprob, b.choices), newArray("by_entropy", byEntropy, b.choices))
}

// numbers are those of the next update with a gradient of the given norm.
func (t *trainer) numbers(o model.AdamW, norm float64) adamW {
	scale := 1.0
	if o.ClipNorm > 0 && norm > o.ClipNorm {
		scale = o.ClipNorm / norm
	}
	updates := float64(t.updates + 1)
	return adamW{
		Rate: float32(o.LearningRate), Scale: float32(scale), Epsilon: float32(o.Epsilon), Decay: float32(o.WeightDecay),
		Beta1: float32(o.Beta1), Rest1: float32(1 - o.Beta1), Correct1: float32(1 / (1 - math.Pow(o.Beta1, updates))),
		Beta2: float32(o.Beta2), Rest2: float32(1 - o.Beta2), Correct2: float32(1 / (1 - math.Pow(o.Beta2, updates))),
	}
}

// Checkpoint implements model.Trainer. The interface has no error to return, so it panics
// where Save has one: a checkpoint that is not the present state must never be stored.
func (t *trainer) Checkpoint() model.Checkpoint {
	c, err := t.Save(context.Background())
	if err != nil {
		panic(fmt.Errorf("checkpoint: %w", err))
	}
	return c
}

// Close implements model.Trainer. A program that is lost has freed everything.
func (t *trainer) Close() {
	_ = t.request(context.Background(), "free", nil, nil) // of a lost program there is nothing to free
}
