package gomlx

import (
	"context"

	"github.com/fulgurite/fulgurite/model"
)

// critic implements model.Critic: a trainer whose graphs return values in place of a
// policy's log-probabilities.
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
