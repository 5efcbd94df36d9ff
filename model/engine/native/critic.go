package native

import (
	"context"

	"github.com/fulgurite/fulgurite/model"
)

// critic implements model.Critic: a trainer whose output is one value for each position.
// Its layers, its optimizer and the order of its sums are the same as a policy's.
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

// values sets the values of some rows: the first column of the output plus the bias.
func (s *shard) values(first, rows int) {
	bias := s.bias()
	for r := range rows {
		for _, to := range s.readers.of(first + r) {
			s.logprobs[to.answer()] = s.logits[r*s.v] + bias
		}
	}
	clear(s.entropies)
}

// bias returns the bias of the value head.
func (s *shard) bias() float32 {
	if s.trainsHead() {
		return s.adapter.flat[s.adapter.valueBias]
	}
	return s.weights[s.valueBias]
}

// valuesGradient replaces the output of some rows by its gradient, and adds the gradient
// of the bias to g.
func (s *shard) valuesGradient(g, logits []float32, first, rows int) {
	bias := s.valueBias
	if s.trainsHead() {
		bias = s.adapter.valueBias
	}
	for r := range rows {
		x := logits[r*s.v : (r+1)*s.v]
		clear(x)
		for i, of := range s.readers.of(first + r) {
			d := s.gradient[of.answer()]
			if i == 0 {
				x[0] = d
			} else {
				x[0] += d
			}
			g[bias] += d
		}
	}
}
