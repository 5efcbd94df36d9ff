package update

import (
	"context"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// Lower returns the advice for a version whose updates diverged.
func Lower(run Run, id model.VersionID, rate string) string {
	return updatePlan{Target: Target{ID: id}, run: run}.lower(rate)
}

// PreferenceUpdate makes a second update of policy, on all of a batch of pairs, with
// another policy as the reference. It returns the metrics.
func PreferenceUpdate(ctx context.Context, s spec.Spec, policy model.Trainer, reference model.RowScorer, b model.Batch, opt model.AdamW) (map[string]float64, error) {
	var m Maker
	whole := minibatches(b, spec.Training{}, 0, 1)[0]
	u := &policyUpdate{
		batch: b, logprobs: m.rowLogprobs, adamW: opt, updates: []minibatch{whole, whole}, work: new(atomic.Uint64), aggregation: s.Loss.Aggregation,
	}
	if err := u.setLoss(s.Loss); err != nil {
		return nil, err
	}
	var err error
	if u.proximal, err = m.logprobs(ctx, reference, b); err != nil {
		return nil, err
	}
	return u.update(ctx, learner{policy: policy}, 1)
}
