package model

import (
	"context"
	"fmt"
	"slices"
)

// CriticPolicy is the policy name of the critic. The critic's versions have the same
// numbers as the versions of DefaultPolicy in the same run.
const CriticPolicy = "critic"

// Critic estimates the remaining return of a sequence: a transformer with a value head.
// It is a separate model with its own optimizer, and is used by one goroutine at a time.
// It reads the same rows as a Trainer, but its values do not depend on Temperature and
// Allowed.
type Critic interface {
	// Values returns len(Tokens)-1 values for each row. Value i is the return expected
	// after Tokens[:i+1], that is, just before Tokens[i+1].
	Values(ctx context.Context, rows []Row) ([][]float32, error)
	// Update makes one optimizer update on all rows together and returns the norm of
	// the gradient before clipping.
	Update(ctx context.Context, rows []Row, objective ValueObjective, opt AdamW) (gradientNorm float64, err error)
	// Checkpoint returns a copy of the present state.
	Checkpoint() Checkpoint
	Close()
}

// ValueObjective is a critic's loss as an engine sees it. The engine calls it once for
// each row with the row's values. It writes into gradient, which is zero before the call,
// the derivative of the whole batch's loss with respect to each value (0 where masked).
// Calls for different rows may run at the same time.
type ValueObjective func(row int, values, gradient []float32)

// The tensors of a value head.
const (
	valueWeight = "score.weight" // [1, hidden_size]
	valueBias   = "score.bias"   // [1]
)

// CriticOf returns the first critic of a policy: the policy's trunk with a value head of
// zeros, so that its value is 0 everywhere. Its moments are fresh. It shares the memory
// of the policy's weights. If the policy has an adapter, the critic has a separate
// adapter on the same base, which starts equal to the policy's.
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
	trunk := slices.DeleteFunc(slices.Clone(policy.Weights), func(t Tensor) bool { return t.Name == lmHead || t.Name == outputTokens })
	head := Weights{
		{Name: valueWeight, Shape: []int{1, a.HiddenSize}, Data: make([]float32, a.HiddenSize)},
		{Name: valueBias, Shape: []int{1}, Data: make([]float32, 1)},
	}
	return Checkpoint{Architecture: a, Adapter: policy.Adapter, Weights: append(trunk, head...)}, nil
}

// CheckPolicy is like Check, but also refuses an architecture with a value head, since it
// can't choose tokens.
func (a Architecture) CheckPolicy() error {
	if a.ValueHead {
		return fmt.Errorf("%w: value_head is true: a critic chooses no tokens", ErrArchitecture)
	}
	return a.Check()
}

// CheckCritic is like Check, but also refuses an architecture without a value head, since
// it estimates nothing.
func (a Architecture) CheckCritic() error {
	if !a.ValueHead {
		return fmt.Errorf("%w: value_head is false: a policy estimates no values", ErrArchitecture)
	}
	return a.Check()
}
