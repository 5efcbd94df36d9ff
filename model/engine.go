package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// Engine makes trainers, critics and decoders that compute with one kind of arithmetic.
type Engine interface {
	// Name is the engine's name in a spec, for example "native".
	Name() string
	// Fingerprint describes everything that the bits of its results depend on:
	// kernels, processor features, build. Equal inputs give equal bits wherever
	// fingerprints are equal and Deterministic is true; a trainer and a decoder
	// then give a token the same log-probability.
	Fingerprint() string
	Deterministic() bool
	// NewTrainer takes a checkpoint and copies the parts that it keeps.
	NewTrainer(Checkpoint) (Trainer, error)
	// NewCritic makes a critic from the checkpoint of an architecture with a value head.
	// It copies the parts that it keeps. NewTrainer and NewDecoder refuse such a
	// checkpoint.
	NewCritic(Checkpoint) (Critic, error)
	// NewDecoder prepares a checkpoint for sampling, which needs neither Updates nor
	// moments. It copies the parts that it keeps.
	NewDecoder(Checkpoint) (Decoder, error)
}

// Checkpoint is the complete state from which training continues. Weights, Mean and
// Variance hold the tensors that Tensors lists: those of the whole model, or those of its
// adapter alone.
type Checkpoint struct {
	Architecture Architecture
	// Adapter, if not nil, is the trained part; the rest of the model is its Base.
	Adapter *Adapter
	Weights Weights
	// Updates is the number of optimizer updates made; with 0, Mean and Variance
	// may be nil.
	Updates  int
	Mean     Weights // AdamW's first moments
	Variance Weights // AdamW's second moments
	// Files replaces Weights, Mean and Variance if the architecture has Config. An
	// adapter without Files is new: an engine draws its tensors from Seed, so that it
	// does not change the model yet.
	Files *Files
	Seed  uint64
	// Moments is MomentsF32 or MomentsInt8. It says how files hold the moments, and how
	// an engine holds them if it supports that. Mean and Variance are float32 in either
	// case.
	Moments string
}

// The types of moments. Those in 8 bits (arXiv:2110.02861) take a quarter of the memory.
const (
	MomentsF32  = ""
	MomentsInt8 = "int8"
)

// Row is one sequence to score or train; Tokens[0] is only context. Logits are divided by
// Temperature before the soft-max, so that log-probabilities are those of the sampling
// distribution. A Temperature of 0 means 1.
type Row struct {
	Tokens      []int32
	Temperature float64
	// Allowed[i] is the set from which Tokens[i+1] was chosen; the soft-max runs over
	// this set alone. A nil set means all tokens. A nil slice restricts nothing.
	Allowed []TokenSet
	// Needed[i] says that the log-probability and the entropy of Tokens[i+1] are read. An
	// engine may give any number for other tokens, which saves the output layer of
	// prompts. A nil slice needs all. Critics ignore it.
	Needed []bool
}

// Objective is a loss as an engine sees it. The engine calls it once for each row, with
// logprobs[i] = log p(Tokens[i+1] | Tokens[:i+1]) and with the entropy, in nats, of each
// of those distributions; both have length len(Tokens)-1. Objective writes the derivative
// of the whole batch's loss with respect to each logprob into gradient (0 where masked),
// and the derivative with respect to each entropy into entropyGradient. Both are zero
// before the call. Calls for different rows may run at the same time.
type Objective func(row int, logprobs, entropies []float32, gradient, entropyGradient []float32)

// AdamW holds the numbers of one optimizer update (Loshchilov and Hutter, 2019,
// arXiv:1711.05101). The gradient is first scaled down to norm ClipNorm if its norm is
// larger; a ClipNorm of 0 turns that off. Weight decay leaves out tensors of rank 1.
type AdamW struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	Epsilon      float64 `json:"epsilon"`
	WeightDecay  float64 `json:"weight_decay"`
	ClipNorm     float64 `json:"clip_norm"`
}

// ErrDiverged is returned by Update when a gradient is not finite. Update then changes
// nothing.
var ErrDiverged = errors.New("gradient is not finite")

// ErrEngineLost is wrapped when the program in which an engine computes has ended or no
// longer responds. Everything that it held is gone, and so is an update whose end was not
// observed. Continue from a stored version or progress; the engine then starts the
// program again.
var ErrEngineLost = errors.New("the program of the engine is missing")

// Trainer holds one policy's weights and optimizer state. It is used by one
// goroutine at a time.
type Trainer interface {
	// Score returns, for each row, len(Tokens)-1 log-probabilities and entropies.
	Score(ctx context.Context, rows []Row) (logprobs, entropies [][]float32, err error)
	// Update makes one optimizer update on all rows together and returns the
	// norm of the gradient before clipping.
	Update(ctx context.Context, rows []Row, objective Objective, opt AdamW) (gradientNorm float64, err error)
	// Checkpoint returns a copy of the present state.
	Checkpoint() Checkpoint
	Close()
}

// RowScorer gives log-probabilities of a model that is not trained, as a Trainer does.
type RowScorer interface {
	Score(ctx context.Context, rows []Row) (logprobs, entropies [][]float32, err error)
	Close()
}

// ScoringEngine is implemented by engines for which a model that is not trained takes
// less memory than a Trainer. It ignores Moments and Updates of the checkpoint.
type ScoringEngine interface {
	NewRowScorer(Checkpoint) (RowScorer, error)
}

// OptimizerTimer is implemented by trainers that know how much of the time of their updates
// was not spent on gradients.
type OptimizerTimer interface {
	// OptimizerTime returns the sum over all updates so far.
	OptimizerTime() time.Duration
}

// Decoder samples from one version's weights, many sequences at once. It is safe for
// concurrent use; requests in flight share batches. A Decoder that is also a Scorer can
// prove that it holds the right weights.
type Decoder interface {
	Decode(ctx context.Context, r DecodeRequest) (Completion, error)
	// Close ends the requests in progress. A second Close does nothing.
	Close()
}

// DecodeRequest asks for one completion.
type DecodeRequest struct {
	Prompt    []int32 // not empty
	MaxTokens int
	// Temperature divides the logits; 0 takes the most likely token and reports
	// log-probabilities at temperature 1.
	Temperature float64
	// Stop ends the completion; the stop token is part of it.
	Stop []int32
	// Seed decides every choice: the noise of the i-th sampled token is a
	// function of Seed and i alone.
	Seed uint64
	// TopP keeps only the most likely tokens that together have this probability, at
	// Temperature and among those that Constraint allows (see Nucleus). 0 and 1 keep all,
	// and at Temperature 0 it has no effect. Log-probabilities are always those of the
	// sampling distribution.
	TopP float64
	// Form restricts the reply; nil restricts nothing. A sampler makes from it the
	// Constraint that decoders obey.
	Form       *Form
	Constraint Constraint
	// Emit, if not nil, is called with each token once it is sampled, in order, by
	// one goroutine at a time, and never after Decode or Sample has returned. It
	// must not block.
	Emit func(token int32, logprob float32)
	// Timing, if not nil, gets how long the parts of the request took before Decode or
	// Sample returns without an error. A sampler that does not know leaves it as it is.
	Timing *Timing
}

// Timing says how long the parts of a request took.
type Timing struct {
	Queued  time.Duration `json:"queued"`  // until it joined the batch
	Prefill time.Duration `json:"prefill"` // from then to the first token
	Decode  time.Duration `json:"decode"`  // from the first token to the last
	// Shared is how many tokens of the prompt were taken over from other requests.
	Shared int `json:"shared,omitempty"`
}

// Completion is a sampled completion.
type Completion struct {
	Tokens   []int32
	Logprobs []float32
	Finish   string // "stop", or "length" when MaxTokens or MaxPositions ended it
	// Forced marks tokens that had no alternative under Constraint and TopP; nil marks
	// none.
	Forced []bool
	// Server names the external server that sampled; empty for an engine.
	Server string
}

// ErrPromptTooLong is wrapped when a prompt leaves no position to sample.
var ErrPromptTooLong = errors.New("prompt too long")

// PromptTooLong is ErrPromptTooLong with its numbers, where they are known.
type PromptTooLong struct {
	Tokens    int // of the prompt
	Positions int // of the model; the reply needs at least one of them
}

func (e *PromptTooLong) Error() string {
	return fmt.Sprintf("%s: %d tokens, the model has %d positions", ErrPromptTooLong, e.Tokens, e.Positions)
}

func (e *PromptTooLong) Unwrap() error { return ErrPromptTooLong }

// ErrRefused is wrapped when an external server refuses a request, and would again.
var ErrRefused = errors.New("the server refuses the request")

// Progress is how far the updates towards a version have come: a state from which the
// version's trainer may continue. It is not a version. A trainer that starts from the
// beginning arrives at the same weights.
type Progress struct {
	VersionID
	// Basis is a digest of everything that decides the updates, so that no trainer
	// continues from a state that other inputs led to.
	Basis    string
	Updates  int    // how many of the version's updates are made
	Manifest string // blob of the state after them
}

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

// Viewer is a Trainer or a Critic that shows its state without copying it.
type Viewer interface {
	// View is like Checkpoint, but the result may be the trainer's own memory: read it
	// only, until the next Update or Close.
	View() Checkpoint
}

// Saver is a Trainer or a Critic whose state is not in this process, so that a copy of it
// may be impossible to get.
type Saver interface {
	// Save is like Checkpoint, or returns the reason why there is no checkpoint.
	Save(ctx context.Context) (Checkpoint, error)
}
