package update

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// Policy makes version t of a policy from its parent and the step's batch. The step has
// passes × minibatches optimizer updates, one by default, and none if no token is trained. A step that was cut off
// continues from its last saved update, with the same result to the bit.
func (m *Maker) Policy(ctx context.Context, t Target, run Run) (model.Version, error) {
	m.begin()
	parent, err := m.parent(ctx, t)
	if err != nil {
		return model.Version{}, err
	}
	batch, err := m.batch(ctx, t, t.ID.Policy)
	if err != nil {
		return model.Version{}, err
	}
	p, u, err := m.policyPlan(t, run, parent, batch)
	if err != nil {
		return model.Version{}, err
	}
	if p.updates == 0 { // nothing to train: the version has the weights and moments of its parent
		m.Warn(ctx, "the step has no token to train, so the version is its parent without an update", "version", t.ID.String())
		p.scores = nil
		return m.execute(ctx, p, "training.optimizer.learning_rate", u.metrics)
	}
	if err := m.timeScores(func() error { return m.scoreBatch(ctx, p, u) }); err != nil {
		return model.Version{}, fmt.Errorf("version %s: %w", t.ID, err)
	}
	if u.limits.servers > 1 {
		if u.servers, err = m.serversOf(ctx, batch); err != nil {
			return model.Version{}, fmt.Errorf("version %s: %w", t.ID, err)
		}
	}
	return m.execute(ctx, p, "training.optimizer.learning_rate", u.metrics)
}

// timeScores measures how long score takes, without the parent that it may load.
func (m *Maker) timeScores(score func() error) error {
	loaded, began := m.spent.Load, time.Now()
	err := score()
	m.spent.Score += time.Since(began) - (m.spent.Load - loaded)
	return err
}

// scoreBatch scores the batch by those policies whose log-probabilities the objective
// reads. A step that continues does this again.
func (m *Maker) scoreBatch(ctx context.Context, p updatePlan, u *policyUpdate) error {
	switch {
	case u.objective.KL.Weight == 0 && u.refers: // the next step needs the reference again
	case u.objective.KL.Weight == 0:
		m.reference.drop()
	default:
		reference, err := m.loadReference(ctx, p.ID, p.run.Engine)
		if err != nil {
			return err
		}
		if u.reference, err = m.logprobs(ctx, reference, u.batch); err != nil {
			return err
		}
	}
	if !u.objective.Correction.Corrects() {
		return nil
	}
	start, err := p.begin(ctx) // the proximal policy is the parent, also of a step that continues
	if err == nil {
		u.proximal, err = m.logprobs(ctx, start.policy, u.batch)
	}
	return err
}

// policyPlan returns the updates from parent to version t.
func (m *Maker) policyPlan(t Target, run Run, parent model.Version, batch model.Batch) (updatePlan, *policyUpdate, error) {
	s, steps := run.Spec, run.Spec.Training.Total(run.Tasks)
	o, err := s.Loss.Objective()
	if err != nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	u := &policyUpdate{
		batch: batch, objective: o, adamW: adamW(s.Training.Optimizer, t.ID.Number, steps),
		updates: minibatches(batch, s.Training, s.Seed, t.ID.Number), work: &m.work,
		aggregation: s.Loss.Aggregation, length: s.Loss.Length, refers: s.Credit.KLInReward != nil,
		limits: limitsOf(s, t.ID), scores: newTokenScores(t.Batch, batch), warn: m.Warn,
	}
	if err := u.adamW.Check(); err != nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	key, err := basis(struct {
		Engine, Fingerprint, Parent, Batch string
		Seed                               uint64
		Step, Steps                        int
		Training                           spec.Training
		Loss                               spec.Loss
	}{run.Engine.Name(), run.Engine.Fingerprint(), parent.Manifest, t.Batch, s.Seed, t.ID.Number, steps, s.Training, s.Loss})
	return updatePlan{
		Target: t, run: run, codec: s.Model.Codec, basis: key, updates: len(u.updates), update: u.update,
		begin: m.beginFrom(parent, t, run), canary: canaryOf(s, batch), scores: u.scores,
	}, u, err
}

// parent reads the version from which t is made.
func (m *Maker) parent(ctx context.Context, t Target) (model.Version, error) {
	id := t.ID
	id.Number = t.Parent
	v, err := m.Versions.Version(ctx, id)
	if err != nil {
		return v, fmt.Errorf("read the parent of version %s: %w", t.ID, err)
	}
	return v, nil
}

// beginFrom returns a function that loads the parent of t.
func (m *Maker) beginFrom(parent model.Version, t Target, run Run) func(context.Context) (learner, error) {
	return func(ctx context.Context) (learner, error) {
		l, err := m.load(ctx, run, parent)
		if err != nil {
			return learner{}, fmt.Errorf("load the parent of version %s: %w", t.ID, unreadable(err, t.ID))
		}
		return l, nil
	}
}

// batch reads the batch of t. The policy of the given name sampled its rows.
func (m *Maker) batch(ctx context.Context, t Target, policy string) (model.Batch, error) {
	id := t.ID
	id.Policy = policy
	data, err := m.blobs().Get(ctx, t.Batch)
	if err != nil {
		return model.Batch{}, fmt.Errorf("read batch %s of version %s: %w", t.Batch, id, unreadable(err, id))
	}
	b, err := hf.DecodeBatch(data)
	if err != nil {
		return model.Batch{}, Invalid(fmt.Errorf("batch %s of version %s: %w", t.Batch, id, err))
	}
	if b.Policy != id.Policy || b.Step != id.Number {
		return model.Batch{}, Invalid(fmt.Errorf("batch %s of version %s is that of step %d of policy %s", t.Batch, id, b.Step, b.Policy))
	}
	if err := b.Restrict(m.Constrain); err != nil {
		return model.Batch{}, Invalid(fmt.Errorf("batch %s of version %s: %w", t.Batch, id, err))
	}
	return b, nil
}
