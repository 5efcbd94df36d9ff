package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CriticPolicy is the policy name of the critic. The critic's versions have the same
// numbers as the versions of DefaultPolicy in the same run.
const CriticPolicy = "critic"

// CriticName returns the policy name of the critic of a policy: CriticPolicy for the only
// policy of a run, and "NAME.critic" for one of several. No policy has a dot in its name.
func CriticName(policy string) string {
	if policy == DefaultPolicy {
		return CriticPolicy
	}
	return policy + "." + CriticPolicy
}

// IsCritic reports whether a policy name is that of a critic.
func IsCritic(name string) bool {
	return name == CriticPolicy || strings.HasSuffix(name, "."+CriticPolicy)
}

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

// ScoresFormat names the layout of a trainer's scores; docs/formats.md describes it,
// model/files/hf reads and writes it.
const ScoresFormat = "fulgurite.scores/1"

// ErrScores is wrapped by every error of Scores.Check.
var ErrScores = errors.New("bad scores")

// Scores holds the trainer's numbers for the trained tokens of a step's batch, in the
// order of the batch's rows. Each number is from the first update that read the token,
// before that update changed the weights. It is NaN if no update read the token, or if
// its trainer died before the version was on record. Nothing depends on these numbers;
// they are for comparing trainer and sampler.
type Scores struct {
	Batch     string    `json:"batch"` // digest of the batch
	Logprobs  []float32 `json:"-"`     // of the tokens, in nats
	Entropies []float32 `json:"-"`     // of the distributions that they were drawn from, in nats
}

// Check returns an error for scores that no trainer could have written.
func (s Scores) Check() error {
	if s.Batch == "" {
		return fmt.Errorf("%w: batch is empty", ErrScores)
	}
	if len(s.Logprobs) != len(s.Entropies) {
		return fmt.Errorf("%w: %d log-probabilities with %d entropies", ErrScores, len(s.Logprobs), len(s.Entropies))
	}
	return nil
}

// ValuesFormat names the layout of a critic's values; docs/formats.md describes
// it, model/files/hf reads and writes it.
const ValuesFormat = "fulgurite.values/1"

// ErrValues is wrapped by every error of Values.Check.
var ErrValues = errors.New("bad values")

// Values holds numbers of a model for each token that the attempts of a step sampled. For
// a critic they are its estimates. They are written once and named by their digest. The
// advantages of a step are computed from them, and so are the returns on which the critic
// is then trained.
type Values struct {
	Policy  string `json:"policy"`  // the critic's
	Version int    `json:"version"` // of the critic
	// Calls[i][j][k] is the return expected of trajectory i just before token k of
	// the completion of its call j.
	Calls [][][]float32 `json:"-"` // arrays, not JSON
}

// Check returns an error, naming the token, for values that no critic could have written.
func (v Values) Check() error {
	if v.Policy == "" {
		return fmt.Errorf("%w: policy is empty", ErrValues)
	}
	if v.Version < 0 {
		return fmt.Errorf("%w: version is %d", ErrValues, v.Version)
	}
	for i, calls := range v.Calls {
		for j, tokens := range calls {
			for k, x := range tokens {
				if !finite(float64(x)) {
					return fmt.Errorf("%w: trajectory %d call %d token %d is %v", ErrValues, i, j, k, x)
				}
			}
		}
	}
	return nil
}
