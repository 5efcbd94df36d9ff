package update

import (
	"context"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// tokenScores collects the trainer's scores of the trained tokens of a batch.
type tokenScores struct {
	model.Scores
	batch model.Batch
	first []int // index of the first token of each row
}

func newTokenScores(digest string, b model.Batch) *tokenScores {
	s := &tokenScores{Scores: model.Scores{Batch: digest}, batch: b, first: make([]int, len(b.Rows))}
	n := 0
	for i, r := range b.Rows {
		s.first[i] = n
		n += r.Trained()
	}
	s.Logprobs, s.Entropies = make([]float32, n), make([]float32, n)
	for i := range n {
		s.Logprobs[i], s.Entropies[i] = float32(math.NaN()), float32(math.NaN())
	}
	return s
}

// add adds the numbers of a row of the batch, for each of its tokens but the first,
// unless an earlier update has already read the row. It may be called for several rows at
// the same time.
func (s *tokenScores) add(row int, logprobs, entropies []float32) {
	at := s.first[row]
	for i, sampled := range s.batch.Rows[row].Sampled[1:] {
		if !sampled {
			continue
		}
		if math.IsNaN(float64(s.Entropies[at])) {
			s.Logprobs[at], s.Entropies[at] = logprobs[i], entropies[i]
		}
		at++
	}
}

// save stores the scores and returns their digest.
func (s *tokenScores) save(ctx context.Context, m *Maker) (string, error) {
	file, err := hf.EncodeScores(s.Scores)
	if err != nil {
		return "", err
	}
	digest, err := m.blobs().Put(ctx, file)
	if err != nil {
		return "", fmt.Errorf("keep the scores of batch %s: %w", s.Batch, err)
	}
	return digest, nil
}
