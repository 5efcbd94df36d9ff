package model

import (
	"context"
	"fmt"
	"slices"
)

// CriticPolicy is the policy name of the critic of a run's policy: its versions have the
// same numbers as those of DefaultPolicy.
const CriticPolicy = "critic"

// Critic estimates the remaining return of a sequence: a transformer with a value head.
// It is a model of its own, with an optimizer of its own, and used by one goroutine at a
// time. It reads the same rows as a Trainer, but a value does not depend on Temperature
// and Allowed.
type Critic interface {
	// Values returns, for each row, len(Tokens)-1 values: number i is the return
	// expected after Tokens[:i+1], so just before Tokens[i+1].
	Values(ctx context.Context, rows []Row) ([][]float32, error)
	// Update makes one optimizer update on all rows together and returns the norm of
	// the gradient before clipping.
	Update(ctx context.Context, rows []Row, objective ValueObjective, opt AdamW) (gradientNorm float64, err error)
	// Checkpoint returns a copy of the present state.
	Checkpoint() Checkpoint
	Close()
}

// ValueObjective is a critic's loss seen from an engine. It is called once for
// each row with its values and writes into gradient, which arrives zeroed, the
// derivative of the whole batch's loss by each of them (0 where masked). Calls for
// different rows may run at once.
type ValueObjective func(row int, values, gradient []float32)

// The tensors of a value head.
const (
	valueWeight = "score.weight" // [1, hidden_size]
	valueBias   = "score.bias"   // [1]
)

// CriticOf makes the critic of a policy: the policy's trunk under a value head of
// zeros, so that it begins with a value of 0 everywhere. Moments are fresh. It
// shares the policy's numbers. The critic of a policy with an adapter has an adapter of
// its own, on the same base, that begins as the policy's.
func CriticOf(policy Checkpoint) (Checkpoint, error) {
	a := policy.Architecture
	if a.Config != "" {
		return Checkpoint{}, fmt.Errorf("%w: critic: model_type %q has none: leave critic out, or take a model of type llama, mistral, qwen2 or qwen3", ErrArchitecture, a.ModelType())
	}
	if err := a.CheckPolicy(); err != nil {
		return Checkpoint{}, fmt.Errorf("critic of a policy: %w", err)
	}
	if err := policy.Check(); err != nil {
		return Checkpoint{}, fmt.Errorf("critic of a policy: %w", err)
	}
	a.ValueHead = true
	trunk := slices.DeleteFunc(slices.Clone(policy.Weights), func(t Tensor) bool { return t.Name == lmHead })
	head := Weights{
		{Name: valueWeight, Shape: []int{1, a.HiddenSize}, Data: make([]float32, a.HiddenSize)},
		{Name: valueBias, Shape: []int{1}, Data: make([]float32, 1)},
	}
	return Checkpoint{Architecture: a, Adapter: policy.Adapter, Weights: append(trunk, head...)}, nil
}

// CheckPolicy is Check, and refuses an architecture with a value head, which chooses no
// tokens.
func (a Architecture) CheckPolicy() error {
	if a.ValueHead {
		return fmt.Errorf("%w: value_head is true: a critic chooses no tokens", ErrArchitecture)
	}
	return a.Check()
}

// CheckCritic is Check, and refuses an architecture without a value head, which estimates
// nothing.
func (a Architecture) CheckCritic() error {
	if !a.ValueHead {
		return fmt.Errorf("%w: value_head is false: a policy estimates no values", ErrArchitecture)
	}
	return a.Check()
}
