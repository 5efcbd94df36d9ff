package model

import (
	"errors"
	"fmt"
)

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
