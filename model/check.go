package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

var (
	// ErrRow is wrapped when a row or a request can't be run with a model.
	ErrRow = errors.New("bad row")
	// ErrNotFinite is wrapped when weights, or numbers computed from them, are not finite.
	ErrNotFinite = errors.New("not finite")
)

// CheckTokens reports why tokens can't be run through a: there are none, or one of them is
// outside the vocabulary.
func (a Architecture) CheckTokens(tokens []int32) error {
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

// Check reports why r can't be run through a.
func (r Row) Check(a Architecture) error {
	if err := a.CheckTokens(r.Tokens); err != nil {
		return err
	}
	if len(r.Tokens) > a.MaxPositions {
		return fmt.Errorf("%w: %d tokens, the model has %d positions", ErrRow, len(r.Tokens), a.MaxPositions)
	}
	if r.Allowed != nil && len(r.Allowed) != len(r.Tokens)-1 {
		return fmt.Errorf("%w: %d allowed sets for %d tokens, want %d", ErrRow, len(r.Allowed), len(r.Tokens), len(r.Tokens)-1)
	}
	if r.Needed != nil && len(r.Needed) != len(r.Tokens)-1 {
		return fmt.Errorf("%w: needed has %d values for %d tokens, want %d", ErrRow, len(r.Needed), len(r.Tokens), len(r.Tokens)-1)
	}
	for i, set := range r.Allowed {
		if token := r.Tokens[i+1]; set != nil && !set.Has(token) {
			return fmt.Errorf("%w: token %d is %d, which is not in its set", ErrRow, i+1, token)
		}
	}
	return checkTemperature(r.Temperature)
}

// Check reports why r can't be run through a. The error is a *PromptTooLong if the prompt
// leaves no position to sample.
func (r DecodeRequest) Check(a Architecture) error {
	if err := a.CheckTokens(r.Prompt); err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	switch {
	case len(r.Prompt) >= a.MaxPositions:
		return &PromptTooLong{Tokens: len(r.Prompt), Positions: a.MaxPositions}
	case r.MaxTokens < int(bounds.MaxTokens().Low):
		return fmt.Errorf("%w: at most %d tokens asked for, want at least 1", ErrRow, r.MaxTokens)
	case !bounds.MaxTokens().Hold(float64(r.MaxTokens)):
		return fmt.Errorf("%w: at most %d tokens asked for, want %s", ErrRow, r.MaxTokens, bounds.MaxTokens())
	case !bounds.TopP().Hold(r.TopP):
		return fmt.Errorf("%w: top_p is %v, want %s", ErrRow, r.TopP, bounds.TopP())
	}
	return checkTemperature(r.Temperature)
}

func checkTemperature(t float64) error {
	if t != 0 && !bounds.Temperature().Hold(t) {
		return fmt.Errorf("%w: temperature is %v, want 0 or %s", ErrRow, t, bounds.Temperature())
	}
	return nil
}

// Check refuses settings that could put a NaN into weights even with a finite gradient. It
// takes what a spec may have, and 0, which means that a part of AdamW is off, except for
// epsilon.
func (o AdamW) Check() error {
	for _, n := range []struct {
		name   string
		value  float64
		within bounds.Bounds
	}{
		{"learning_rate", o.LearningRate, bounds.LearningRate()}, {"beta1", o.Beta1, bounds.Beta()}, {"beta2", o.Beta2, bounds.Beta()},
		{"weight_decay", o.WeightDecay, bounds.WeightDecay()}, {"clip_norm", o.ClipNorm, bounds.ClipNorm()},
	} {
		if n.value != 0 && !n.within.Hold(n.value) {
			return fmt.Errorf("adamw: %s is %v, want 0 or %s", n.name, n.value, n.within)
		}
	}
	if !bounds.Epsilon().Hold(o.Epsilon) {
		return fmt.Errorf("adamw: epsilon is %v, want %s", o.Epsilon, bounds.Epsilon())
	}
	return nil
}

// CheckFinite reports the first number that is not finite.
func (t Tensor) CheckFinite() error {
	for i, x := range t.Data {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("tensor %s: number %d is %v: %w", t.Name, i, x, ErrNotFinite)
		}
	}
	return nil
}

// CheckFinite reports the first number that is not finite.
func (w Weights) CheckFinite() error {
	for _, t := range w {
		if err := t.CheckFinite(); err != nil {
			return err
		}
	}
	return nil
}
