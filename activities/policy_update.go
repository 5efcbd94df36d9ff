package activities

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// policyUpdate makes the updates of one step.
type policyUpdate struct {
	batch   model.Batch
	loss    spec.Loss
	adamW   model.AdamW
	updates []minibatch
	// proximal are the log-probabilities of the batch's rows under the policy that
	// the step starts from; nil unless the loss reads them.
	proximal [][]float32
	work     *atomic.Uint64
}

// scoreRows is how many rows are scored between two signs of progress.
const scoreRows = 64

// score has the policy that the step starts from give its own log-probabilities,
// if the loss needs them.
func (p *policyUpdate) score(ctx context.Context, trainer model.Trainer) error {
	rows := p.batch.EngineRows()
	p.proximal = make([][]float32, 0, len(rows))
	for from := 0; from < len(rows); from += scoreRows {
		to := min(from+scoreRows, len(rows))
		logprobs, _, err := trainer.Score(ctx, rows[from:to])
		if err != nil {
			return fmt.Errorf("score the batch: %w", err)
		}
		p.proximal = append(p.proximal, logprobs...)
		p.work.Add(uint64(to - from))
	}
	return nil
}

func (p *policyUpdate) policyLoss() credit.Loss {
	if p.loss.Correction == spec.CorrectionDecoupled {
		return credit.DecoupledPPO{Low: p.loss.ClipLow, High: p.loss.ClipHigh, Cap: p.loss.ImportanceCap}
	}
	return credit.PPOClip{Low: p.loss.ClipLow, High: p.loss.ClipHigh}
}

// update makes update u and describes it.
func (p *policyUpdate) update(ctx context.Context, trainer model.Trainer, u int) (map[string]float64, error) {
	m, loss := p.updates[u], p.policyLoss()
	rows := make([]model.Row, len(m.rows))
	for i, row := range m.rows {
		rows[i] = p.batch.Rows[row].Row
	}
	stats, entropy := make([]credit.Stats, len(rows)), make([]float64, len(rows))
	norm, err := trainer.Update(ctx, rows, func(i int, logprobs, entropies, gradient, _ []float32) {
		r := p.batch.Rows[m.rows[i]]
		tokens := newTokens(logprobs)
		if p.proximal != nil {
			tokens.Proximal = wide(p.proximal[m.rows[i]])
		}
		weight := m.denominators.Weight(credit.Aggregation(p.loss.Aggregation), r.Trajectory)
		for j := range logprobs {
			if !r.Sampled[j+1] {
				continue
			}
			tokens.Sampled[j], tokens.Advantage[j], tokens.Weight[j] = float64(r.Logprobs[j+1]), float64(r.Advantages[j+1]), weight
			entropy[i] += float64(entropies[j])
		}
		stats[i] = loss.Evaluate(tokens)
		narrow(gradient, tokens.Gradient)
		p.work.Add(1)
	}, p.adamW)
	if err != nil {
		return nil, err
	}
	var sum credit.Stats
	var nats float64
	for i := range stats { // in order of rows, so that metrics repeat to the bit
		sum.Add(stats[i])
		nats += entropy[i]
	}
	n := math.Max(1, float64(sum.Count))
	metrics := map[string]float64{
		"train/loss": sum.Loss, "train/gradient_norm": norm, learningRate: p.adamW.LearningRate,
		"train/entropy": nats / n, "train/ratio": sum.Ratio / n, "train/clip_fraction": sum.Clipped / n,
		"train/kl": sum.KL / n, "train/mismatch": sum.Gap / n,
	}
	if p.proximal != nil {
		metrics["train/importance_mean"] = sum.Importance / n
		metrics["train/importance_capped"] = sum.Capped / n
		metrics["train/staleness"] = sum.Staleness / n
	}
	for name, v := range metrics {
		metrics[name] = bounded(v)
	}
	return metrics, nil
}

// metrics describes the step: the mean of each number over its updates, and with
// more than one update also what it was at the last.
func (p *policyUpdate) metrics(done tally) map[string]float64 {
	out := map[string]float64{"train/updates": float64(done.updates)}
	for name := range done.last {
		if name == learningRate { // all updates have the step's
			out[name] = p.adamW.LearningRate
			continue
		}
		out[name] = done.mean(name)
		if done.updates > 1 {
			out["train/last_"+strings.TrimPrefix(name, "train/")] = done.last[name]
		}
	}
	return out
}

const learningRate = "train/learning_rate"

// largest is the greatest magnitude of a number that describes an update. A ratio
// to what was next to impossible may overflow though the clip keeps the update
// sound, and neither manifests nor JSON have room for infinity.
const largest = 1e300

func bounded(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return math.Max(-largest, math.Min(v, largest))
}

func newTokens(logprobs []float32) credit.Tokens {
	n := len(logprobs)
	return credit.Tokens{
		Current: wide(logprobs), Sampled: make([]float64, n), Advantage: make([]float64, n),
		Weight: make([]float64, n), Gradient: make([]float64, n),
	}
}

func wide(src []float32) []float64 {
	out := make([]float64, len(src))
	for i, v := range src {
		out[i] = float64(v)
	}
	return out
}

func narrow(dst []float32, src []float64) {
	for i, v := range src {
		dst[i] = float32(v)
	}
}
