package update

import (
	"context"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
)

// The names of the metrics of a critic's step.
const (
	criticLoss     = "critic/loss"
	criticGradient = "critic/gradient_norm"
	criticVariance = "critic/explained_variance"
	criticMean     = "critic/value_mean"
)

// criticUpdate makes the updates of one step of the critic.
type criticUpdate struct {
	batch   model.Batch
	loss    credit.ValueLoss
	adamW   model.AdamW
	updates []minibatch
	// old are the values of the batch's rows by the critic that the step starts from.
	old  [][]float32
	work *atomic.Uint64
}

// update makes update number u. Its loss is the mean over the trained tokens of its part
// of the batch.
func (c *criticUpdate) update(ctx context.Context, l learner, u int) (map[string]float64, error) {
	m := c.updates[u]
	rows := make([]model.Row, len(m.rows))
	for i, row := range m.rows {
		rows[i] = model.Row{Tokens: c.batch.Rows[row].Tokens}
	}
	losses := make([]float64, len(rows))
	norm, err := l.critic.Update(ctx, rows, func(i int, values, gradient []float32) {
		r, old := c.batch.Rows[m.rows[i]], c.old[m.rows[i]]
		weight := m.denominators.Weight(credit.TokenMean, r.Trajectory)
		for j, v := range values {
			if !r.Sampled[j+1] {
				continue
			}
			loss, derivative := c.loss.Evaluate(float64(v), float64(old[j]), float64(r.Returns[j+1]))
			losses[i] += weight * loss
			gradient[j] = float32(weight * derivative)
		}
		c.work.Add(1)
	}, c.adamW)
	if err != nil {
		return nil, err
	}
	sum := 0.0
	for _, l := range losses { // in order of rows, so that metrics repeat to the bit
		sum += l
	}
	return map[string]float64{criticLoss: bounded(sum), criticGradient: bounded(norm)}, nil
}

// metrics returns the metrics of the step: how well the critic predicted the batch before
// it learned from it, and the mean of each metric over the updates.
func (c *criticUpdate) metrics(done tally) map[string]float64 {
	var values, returns []float64
	mean := 0.0
	for i, r := range c.batch.Rows {
		for t, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			v := float64(c.old[i][t-1])
			values, returns = append(values, v), append(returns, float64(r.Returns[t]))
			mean += v
		}
	}
	return map[string]float64{
		criticLoss: done.value(criticLoss), criticGradient: done.value(criticGradient),
		criticVariance: bounded(credit.ExplainedVariance(values, returns)), criticMean: bounded(mean / float64(len(values))),
	}
}
