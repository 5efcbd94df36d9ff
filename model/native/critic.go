package native

import (
	"context"

	"github.com/fulgurite/fulgurite/model"
)

// critic implements model.Critic: a trainer whose output is one value for each
// position. Its layers, its optimizer and the order of its sums are a policy's.
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

// values are the first column of the output and the bias.
func (s *shard) values() {
	bias := s.flat[s.valueBias]
	for r := range s.rows {
		s.logprobs[r] = s.logits[r*s.v] + bias
	}
	clear(s.entropies)
}

// valuesGradient makes the output its gradient, and adds the bias's to g.
func (s *shard) valuesGradient(g []float32) {
	for r := range s.rows {
		x := s.logits[r*s.v : (r+1)*s.v]
		clear(x)
		x[0] = s.gradient[r]
		g[s.valueBias] += s.gradient[r]
	}
}
