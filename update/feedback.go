package update

import (
	"context"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// feedback reports whether the batch has corrected texts or preferences, whose rows have no
// recorded log-probabilities.
func (p *policyUpdate) feedback() bool { return p.batch.Objective() != model.PolicyGradient }

// setLoss sets the loss of the batch's rows. Of a batch of feedback, the log-probabilities
// of a sampler are neither checked nor compared with the trainer's.
func (p *policyUpdate) setLoss(l spec.Loss) error {
	if p.feedback() {
		p.limits, p.scores = mismatchLimits{}, nil
	}
	switch p.batch.Objective() {
	case model.Supervised:
		loss, err := l.SupervisedLoss()
		p.loss, p.objective = loss, credit.Objective{KL: loss.KL, Entropy: loss.Entropy}
		return err
	case model.Preference:
		loss, err := l.PreferenceLoss()
		p.preference, p.toFirst = &loss, l.HoldsPreferencesToFirst()
		return err
	default:
		o, err := l.Objective()
		p.loss, p.objective = o, o
		return err
	}
}

// pairLosses has what an update needs of the pairs of its minibatch.
type pairLosses struct {
	loss, margin float64 // means over the pairs
	// accuracy is the part of the pairs whose chosen completion has the greater implicit
	// reward.
	accuracy float64
	// derivatives are those of loss by the log-probability of each trained token, one for
	// each row of the minibatch.
	derivatives []float64
}

// pairs evaluates the pairs of update u under the current weights of policy. rows are the
// rows of the minibatch. The derivative of a row depends on both rows of its pair, and the
// trainer's Update evaluates one row at a time, so all rows are scored before it.
func (p *policyUpdate) pairs(ctx context.Context, policy model.RowScorer, rows []model.Row, u int) (pairLosses, error) {
	m := p.updates[u]
	index := map[int]int{} // of each row in the minibatch
	for i, row := range m.rows {
		index[row] = i
	}
	pairs, err := p.batch.Pairs(m.rows)
	if err != nil {
		return pairLosses{}, Invalid(err)
	}
	current, reference := make([]float64, len(m.rows)), make([]float64, len(m.rows))
	for i, row := range m.rows {
		current[i] = trainedSum(p.batch.Rows[row], p.proximal[row])
		if reference[i] = current[i]; p.toFirst {
			reference[i] = trainedSum(p.batch.Rows[row], p.first[row])
		}
	}
	if u > 0 { // before the first update, the policy is the parent
		logprobs, err := p.logprobs(ctx, policy, rows)
		if err != nil {
			return pairLosses{}, err
		}
		for i, row := range m.rows {
			current[i] = trainedSum(p.batch.Rows[row], logprobs[i])
		}
	}
	out := pairLosses{derivatives: make([]float64, len(m.rows))}
	n := float64(len(pairs))
	for _, pair := range pairs {
		chosen, rejected := index[pair.Chosen], index[pair.Rejected]
		x := p.preference.Evaluate(credit.Pair{
			Chosen: current[chosen], Rejected: current[rejected], ReferenceChosen: reference[chosen], ReferenceRejected: reference[rejected],
		})
		out.loss += x.Loss
		out.margin += x.Margin
		if x.Margin > 0 {
			out.accuracy++
		}
		out.derivatives[chosen], out.derivatives[rejected] = x.Derivative/n, -x.Derivative/n
	}
	out.loss, out.margin, out.accuracy = out.loss/n, out.margin/n, out.accuracy/n
	return out, nil
}

// evaluate writes the derivatives of row i of the minibatch. Its Stats lack the loss, which
// is that of pairs.
func (p pairLosses) evaluate(i int, t credit.Tokens) credit.Stats {
	var s credit.Stats
	for j, w := range t.Weight {
		if w == 0 {
			continue
		}
		t.Gradient[j] = p.derivatives[i]
		s.Count++
		s.Entropy += t.Entropy[j]
	}
	return s
}

// describe adds the metrics of the pairs.
func (p pairLosses) describe(metrics map[string]float64) {
	metrics["train/loss"] = p.loss
	metrics["train/preference_accuracy"], metrics["train/preference_margin"] = p.accuracy, p.margin
}

// trainedSum returns the sum of the log-probabilities of a row's trained tokens.
// logprobs[j] is that of token j+1.
func trainedSum(r model.BatchRow, logprobs []float32) float64 {
	sum := 0.0
	for j, x := range logprobs {
		if r.Sampled[j+1] {
			sum += float64(x)
		}
	}
	return sum
}
