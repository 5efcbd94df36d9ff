package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
	"github.com/fulgurite/fulgurite/spec"
)

// TrainCritic makes version Step of the critic from its version Step−1 and the
// returns in the step's batch. Like TrainStep it returns a version that stands
// already, and goes on where a step was cut off, with the same result to the bit.
func (t *Trainer) TrainCritic(ctx context.Context, in TrainCriticInput) (_ TrainCriticResult, err error) {
	defer settle(&err)
	l := lineage{model.VersionID{Run: in.Run, Policy: model.CriticPolicy, Number: in.Step}, in.Step - 1, in.Batch}
	return t.once(ctx, l, func(ctx context.Context, run training) (VersionResult, error) {
		return t.trainCritic(ctx, in, l, run)
	})
}

func (t *Trainer) trainCritic(ctx context.Context, in TrainCriticInput, l lineage, run training) (VersionResult, error) {
	if len(in.Set) > 0 {
		var err error
		if run.spec, err = run.spec.Set(in.Set); err != nil {
			return VersionResult{}, invalid(fmt.Errorf("spec of run %s: %w", in.Run, err))
		}
	}
	if run.spec.Critic == nil {
		return VersionResult{}, invalid(fmt.Errorf("spec of run %s: it has no critic", in.Run))
	}
	parent, err := t.Versions.Version(ctx, model.VersionID{Run: in.Run, Policy: l.id.Policy, Number: l.parent})
	if err != nil {
		return VersionResult{}, fmt.Errorf("read the parent of version %s: %w", l.id, err)
	}
	batch, err := t.batch(ctx, lineage{model.VersionID{Run: in.Run, Policy: in.Policy, Number: in.Step}, l.parent, l.batch})
	if err != nil {
		return VersionResult{}, err
	}
	c, u, err := t.criticCourse(l, run, parent, batch)
	if err != nil {
		return VersionResult{}, err
	}
	start, err := c.begin(ctx) // also of a step that goes on: its parent's values are the old ones
	if err == nil {
		u.old, err = t.values(ctx, start, batch.EngineRows())
	}
	if err != nil {
		return VersionResult{}, fmt.Errorf("version %s: %w", l.id, err)
	}
	critic, done, err := follow(ctx, t, c)
	if errors.Is(err, model.ErrDiverged) {
		return VersionResult{}, invalid(fmt.Errorf("version %s: %w: lower critic.learning_rate", l.id, err))
	}
	if err != nil {
		return VersionResult{}, fmt.Errorf("version %s: %w", l.id, err)
	}
	v, made, err := t.commitAs(ctx, l, run.engine, model.Manifest{Codec: c.codec, Metrics: u.metrics(done)}, t.withoutCanary(ctx, critic.Checkpoint()))
	if err != nil {
		return VersionResult{}, err
	}
	t.manifest = made // no later step asks for it if another's version stands
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, nil
}

// criticCourse are the updates from parent to the version of l.
func (t *Trainer) criticCourse(l lineage, run training, parent model.Version, batch model.Batch) (courseOf[model.Critic], *criticUpdate, error) {
	s, adam := run.spec, run.spec.Training
	adam.Passes = s.Critic.Passes
	adam.Optimizer.LearningRate, adam.Optimizer.Schedule = s.Critic.LearningRate, spec.ScheduleConstant
	u := &criticUpdate{
		batch: batch, loss: credit.ValueLoss{Clip: s.Critic.Clip}, adamW: adamW(adam.Optimizer, l.id.Number, 1),
		updates: minibatches(batch, adam, s.Seed, l.id.Number), work: &t.work,
	}
	if len(batch.Rows) == 0 || batch.Rows[0].Returns == nil || len(u.updates) == 0 {
		return courseOf[model.Critic]{}, nil, invalid(fmt.Errorf("batch %s of version %s has no returns to learn", l.batch, l.id))
	}
	key, err := basis(struct {
		Engine, Fingerprint, Parent, Batch string
		Seed                               uint64
		Step                               int
		Training                           spec.Training
		Critic                             spec.Critic
	}{run.engine.Name(), run.engine.Fingerprint(), parent.Manifest, l.batch, s.Seed, l.id.Number, adam, *s.Critic})
	c := courseOf[model.Critic]{
		lineage: l, engine: run.engine, codec: s.Model.Codec, basis: key, updates: len(u.updates), update: u.update,
		begin: func(ctx context.Context) (model.Critic, error) {
			critic, err := hold[model.Critic](ctx, t, run.engine, parent)
			if err != nil {
				return nil, fmt.Errorf("load the parent of version %s: %w", l.id, unreadable(err, l.id))
			}
			return critic, nil
		},
	}
	return c, u, err
}

// withoutCanary saves a critic's version, which no sampler loads, so that it needs no
// canary.
func (t *Trainer) withoutCanary(ctx context.Context, c model.Checkpoint) func(model.Manifest) (manifest, weights string, err error) {
	return func(m model.Manifest) (string, string, error) { return checkpoint.Save(ctx, t.blobs(), c, m) }
}
