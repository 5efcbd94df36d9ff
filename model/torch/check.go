package torch

import (
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
)

var (
	// ErrRow is wrapped when a row can't be run with the model.
	ErrRow = errors.New("bad row")
	// ErrNotFinite is wrapped when weights, or numbers computed from them, are not
	// finite.
	ErrNotFinite = errors.New("not finite")
)

// checkCheckpoint reports the first tensor that does not match or is not finite.
func checkCheckpoint(c model.Checkpoint) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.Moments != model.MomentsF32 && c.Moments != model.MomentsInt8 {
		return fmt.Errorf("moments %q: there are %q and %q", c.Moments, model.MomentsF32, model.MomentsInt8)
	}
	if c.Updates < 0 {
		return fmt.Errorf("%d updates", c.Updates)
	}
	for _, of := range []struct {
		name    string
		tensors model.Weights
	}{{"weights", c.Weights}, {"mean", c.Mean}, {"variance", c.Variance}} {
		if of.tensors == nil && c.Updates == 0 {
			continue
		}
		if err := c.Match(of.tensors); err != nil {
			return fmt.Errorf("%s after %d updates: %w", of.name, c.Updates, err)
		}
		if err := checkFinite(of.tensors); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}

func checkFinite(w model.Weights) error {
	for _, t := range w {
		for i, x := range t.Data {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				return fmt.Errorf("tensor %s: number %d is %v: %w", t.Name, i, x, ErrNotFinite)
			}
		}
	}
	return nil
}

// checkRow reports why a row can't be run through a.
func checkRow(a model.Architecture, r model.Row) error {
	if len(r.Tokens) == 0 || len(r.Tokens) > a.MaxPositions {
		return fmt.Errorf("%w: %d tokens, want 1 to %d", ErrRow, len(r.Tokens), a.MaxPositions)
	}
	if err := checkTokens(a, r.Tokens); err != nil {
		return err
	}
	if r.Allowed != nil && len(r.Allowed) != len(r.Tokens)-1 {
		return fmt.Errorf("%w: %d allowed sets for %d tokens, want %d", ErrRow, len(r.Allowed), len(r.Tokens), len(r.Tokens)-1)
	}
	for i, set := range r.Allowed {
		if token := r.Tokens[i+1]; set != nil && !set.Has(token) {
			return fmt.Errorf("%w: token %d is %d, which is not in its set", ErrRow, i+1, token)
		}
	}
	return checkTemperature(r.Temperature)
}

// checkTokens reports why tokens can't be run through a.
func checkTokens(a model.Architecture, tokens []int32) error {
	if len(tokens) == 0 {
		return fmt.Errorf("%w: no tokens", ErrRow)
	}
	for i, t := range tokens {
		if t < 0 || int(t) >= a.VocabSize {
			return fmt.Errorf("%w: token %d is %d, outside the vocabulary of %d", ErrRow, i, t, a.VocabSize)
		}
	}
	return nil
}

func checkTemperature(t float64) error {
	if t != 0 && !(t >= 1e-6 && t <= 1e6) { // also refuses NaN
		return fmt.Errorf("%w: temperature is %v, want 0 or 1e-6 to 1e6", ErrRow, t)
	}
	return nil
}

// checkAdamW refuses settings that could put a NaN into weights even with a finite
// gradient.
func checkAdamW(o model.AdamW) error {
	for _, n := range []struct {
		name         string
		value, below float64
	}{
		{"learning_rate", o.LearningRate, math.MaxFloat32}, {"beta1", o.Beta1, 1}, {"beta2", o.Beta2, 1},
		{"epsilon", o.Epsilon, 1}, {"weight_decay", o.WeightDecay, math.MaxFloat32}, {"clip_norm", o.ClipNorm, math.MaxFloat64},
	} {
		if within := n.value >= 0 && n.value < n.below; !within { // also refuses NaN
			return fmt.Errorf("adamw: %s is %v, want at least 0 and below %g", n.name, n.value, n.below)
		}
	}
	if float32(o.Epsilon) == 0 { // the update divides by it where a gradient has always been 0
		return fmt.Errorf("adamw: epsilon is %v, want a positive float32", o.Epsilon)
	}
	return nil
}
