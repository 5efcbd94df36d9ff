package update

import (
	"context"
	"maps"
	"math"
	"strings"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
)

// policyUpdate makes the updates of one step.
type policyUpdate struct {
	batch       model.Batch
	objective   credit.Objective
	aggregation credit.Aggregation
	length      int // the divisor of credit.Constant
	adamW       model.AdamW
	updates     []minibatch
	// proximal and reference are the log-probabilities of the batch's rows under the
	// policy that the step starts from and under version 0; nil unless the objective
	// reads them.
	proximal, reference [][]float32
	// refers is true if ScoreReference needs the reference, even if the objective does
	// not.
	refers bool
	limits mismatchLimits
	// servers are the servers that sampled the batch's calls. They are nil unless there
	// are several.
	servers servers
	scores  *tokenScores
	work    *atomic.Uint64
	warn    func(ctx context.Context, message string, pairs ...any)
}

// update makes update u and returns its metrics.
func (p *policyUpdate) update(ctx context.Context, l learner, u int) (map[string]float64, error) {
	m := p.updates[u]
	m.denominators.Length = p.length
	rows := make([]model.Row, len(m.rows))
	for i, row := range m.rows {
		rows[i] = p.batch.Rows[row].Row
		rows[i].Needed = p.batch.Rows[row].Sampled[1:]
	}
	stats := make([]credit.Stats, len(rows))
	norm, err := l.policy.Update(ctx, rows, func(i int, logprobs, entropies, gradient, entropyGradient []float32) {
		p.scores.add(m.rows[i], logprobs, entropies)
		tokens := p.tokens(m.rows[i], logprobs, entropies)
		p.weigh(tokens, m, m.rows[i])
		stats[i] = p.objective.Evaluate(tokens)
		narrow(gradient, tokens.Gradient)
		narrow(entropyGradient, tokens.EntropyGradient)
		p.work.Add(1)
	}, p.adamW)
	if err != nil {
		return nil, err
	}
	var sum credit.Stats
	for _, s := range stats { // in order of rows, so that metrics repeat to the bit
		sum.Add(s)
	}
	metrics := p.describe(sum)
	if u > 0 { // the earlier updates have moved the policy away from the sampler
		maps.DeleteFunc(metrics, func(name string, _ float64) bool { return ofFirst(name) })
	} else {
		servers := p.scores.byServer(m.rows, p.servers)
		if err := p.limits.check(sum, servers); err != nil {
			return nil, Invalid(err)
		}
		putServers(metrics, servers)
		if mean, warn := p.limits.unusual(sum); warn {
			p.warn(ctx, "what sampled has other log-probabilities than the trainer", "version", p.limits.sampled.String(), "train/mismatch", mean, "usual", p.limits.warnAbove)
		}
	}
	metrics["train/gradient_norm"], metrics[learningRate] = norm, p.adamW.LearningRate
	for name, v := range metrics {
		metrics[name] = bounded(v)
	}
	return metrics, nil
}

// tokens returns the tokens of a row of the batch in the objective's form, without their
// weights.
func (p *policyUpdate) tokens(row int, logprobs, entropies []float32) credit.Tokens {
	r, t := p.batch.Rows[row], newTokens(logprobs)
	t.Call, t.Entropy, t.EntropyGradient = r.Calls[1:], wide(entropies), make([]float64, len(logprobs))
	if p.proximal != nil {
		t.Proximal = wide(p.proximal[row])
	}
	if p.reference != nil {
		t.Reference = wide(p.reference[row])
	}
	return t
}

// weigh sets which tokens of a row are trained, and how much they count in minibatch m.
func (p *policyUpdate) weigh(t credit.Tokens, m minibatch, row int) {
	r := p.batch.Rows[row]
	weight := m.denominators.Weight(p.aggregation, r.Trajectory)
	for j := range t.Weight {
		if r.Sampled[j+1] {
			t.Sampled[j], t.Advantage[j], t.Weight[j] = float64(r.Logprobs[j+1]), float64(r.Advantages[j+1]), weight
		}
	}
}

// describe returns the statistics of an update's tokens as metrics. It leaves out those
// of parts that the objective does not have.
func (p *policyUpdate) describe(s credit.Stats) map[string]float64 {
	n := math.Max(1, float64(s.Count))
	metrics := map[string]float64{
		"train/loss": s.Loss, "train/entropy": s.Entropy / n, "train/ratio": s.Ratio / n, "train/ratio_max": s.RatioMax,
		"train/clip_fraction": s.Clipped() / n, "train/clip_fraction_low": s.ClippedLow / n, "train/clip_fraction_high": s.ClippedHigh / n,
		"train/kl": s.KL / n, "train/mismatch": s.Gap / n,
	}
	if p.limits.hasWorst() {
		metrics["train/mismatch_max"] = s.GapMax
	}
	if p.reference != nil {
		metrics["train/kl_ref"] = s.Reference / n
	}
	if p.proximal != nil {
		metrics["train/importance_mean"] = s.Importance / n
		metrics["train/importance_capped"] = s.Capped / n
		metrics["train/importance_ess"] = s.Effective()
		metrics["train/rejected"] = s.Rejected / n
		metrics["train/staleness"] = s.Staleness / n
	}
	return metrics
}

// metrics returns the metrics of the step: for each metric its mean, or maximum, over the
// updates. With more than one update it also has the value of the last one.
func (p *policyUpdate) metrics(done tally) map[string]float64 {
	out := map[string]float64{"train/updates": float64(done.updates)}
	for name := range done.last {
		if ofFirst(name) {
			continue
		}
		if name == learningRate { // it is the same for all updates of a step
			out[name] = p.adamW.LearningRate
			continue
		}
		out[name] = done.value(name)
		if done.updates > 1 {
			out["train/last_"+strings.TrimPrefix(name, "train/")] = done.last[name]
		}
	}
	for name, v := range done.sums {
		if ofFirst(name) {
			out[name] = v
		}
	}
	return out
}

const learningRate = "train/learning_rate"

// ofFirst reports whether a metric is computed for a step's first update only: how far
// the sampler was from the trainer, in total and by server.
func ofFirst(name string) bool { return strings.HasPrefix(name, "train/mismatch") }

// largest bounds the magnitude of an update's metrics. The ratio of a token that was
// almost impossible may overflow although the clip keeps the update sound, and neither
// manifests nor JSON can hold infinity.
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
