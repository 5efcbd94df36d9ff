package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// TrainStep makes version Step of version Step−1 from the step's batch: as many
// optimizer updates as the spec has passes and minibatches, one by default. A
// version that stands already is returned as it is. A step that was cut off goes
// on from its last saved update, with the same result to the bit.
func (t *Trainer) TrainStep(ctx context.Context, in TrainStepInput) (_ TrainStepResult, err error) {
	defer settle(&err)
	l := lineage{model.VersionID{Run: in.Run, Policy: in.Policy, Number: in.Step}, in.Step - 1, in.Batch}
	return t.once(ctx, l, func(ctx context.Context, run training) (VersionResult, error) {
		return t.trainStep(ctx, in, l, run)
	})
}

func (t *Trainer) trainStep(ctx context.Context, in TrainStepInput, l lineage, run training) (VersionResult, error) {
	if len(in.Set) > 0 {
		var err error
		if run.spec, err = run.spec.Set(in.Set); err != nil {
			return VersionResult{}, invalid(fmt.Errorf("spec of run %s: %w", in.Run, err))
		}
	}
	parent, err := t.Versions.Version(ctx, model.VersionID{Run: in.Run, Policy: in.Policy, Number: l.parent})
	if err != nil {
		return VersionResult{}, fmt.Errorf("read the parent of version %s: %w", l.id, err)
	}
	batch, err := t.batch(ctx, l)
	if err != nil {
		return VersionResult{}, err
	}
	c, p, err := t.stepCourse(l, run, parent, batch)
	if err != nil {
		return VersionResult{}, err
	}
	if err := t.score(ctx, c, p); err != nil {
		return VersionResult{}, fmt.Errorf("version %s: %w", l.id, err)
	}
	trainer, done, err := t.follow(ctx, c)
	if errors.Is(err, model.ErrDiverged) {
		return VersionResult{}, invalid(fmt.Errorf("version %s: %w: lower training.optimizer.learning_rate", l.id, err))
	}
	if err != nil {
		return VersionResult{}, fmt.Errorf("version %s: %w", l.id, err)
	}
	metrics := p.metrics(done)
	v, made, err := t.commit(ctx, l, run.engine, trainer, trainer.Checkpoint(), model.Manifest{Codec: c.codec, Metrics: metrics})
	if err != nil {
		return VersionResult{}, err
	}
	t.manifest = made // no later step asks for it if another's version stands
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, nil
}

// score has the batch scored by those policies whose log-probabilities the
// objective reads. That is done anew by a step that goes on.
func (t *Trainer) score(ctx context.Context, c course, p *policyUpdate) error {
	switch {
	case p.objective.KL.Weight == 0 && p.refers: // the next step asks for it again
	case p.objective.KL.Weight == 0:
		t.reference.drop()
	default:
		reference, err := t.frozen(ctx, c.lineage, c.engine)
		if err != nil {
			return err
		}
		if p.reference, err = p.score(ctx, reference); err != nil {
			return err
		}
	}
	if !p.objective.Correction.Corrects() {
		return nil
	}
	start, err := c.begin(ctx) // the proximal policy is the parent, also of a step that goes on
	if err == nil {
		p.proximal, err = p.score(ctx, start)
	}
	return err
}

// stepCourse are the updates from parent to the version of l.
func (t *Trainer) stepCourse(l lineage, run training, parent model.Version, batch model.Batch) (course, *policyUpdate, error) {
	s, steps := run.spec, run.spec.Training.Total(run.Splits[trace.Train].Count)
	o, err := s.Loss.Objective()
	if err != nil {
		return course{}, nil, invalid(fmt.Errorf("version %s: %w", l.id, err))
	}
	p := &policyUpdate{
		batch: batch, objective: o, adamW: adamW(s.Training.Optimizer, l.id.Number, steps),
		updates: minibatches(batch, s.Training, s.Seed, l.id.Number), work: &t.work,
		aggregation: s.Loss.Aggregation, length: s.Loss.Length, refers: s.Credit.KLInReward != nil,
	}
	if len(p.updates) == 0 {
		return course{}, nil, invalid(fmt.Errorf("batch %s of version %s has no trained token", l.batch, l.id))
	}
	key, err := basis(struct {
		Engine, Fingerprint, Parent, Batch string
		Seed                               uint64
		Step, Steps                        int
		Training                           spec.Training
		Loss                               spec.Loss
	}{run.engine.Name(), run.engine.Fingerprint(), parent.Manifest, l.batch, s.Seed, l.id.Number, steps, s.Training, s.Loss})
	c := course{
		lineage: l, engine: run.engine, codec: s.Model.Codec, basis: key, updates: len(p.updates), update: p.update,
		begin: func(ctx context.Context) (model.Trainer, error) {
			trainer, err := t.hold(ctx, run.engine, parent)
			if err != nil {
				return nil, fmt.Errorf("load the parent of version %s: %w", l.id, unreadable(err, l.id))
			}
			return trainer, nil
		},
	}
	return c, p, err
}

// batch reads the batch of l.
func (t *Trainer) batch(ctx context.Context, l lineage) (model.Batch, error) {
	data, err := t.blobs().Get(ctx, l.batch)
	if err != nil {
		return model.Batch{}, fmt.Errorf("read batch %s of version %s: %w", l.batch, l.id, unreadable(err, l.id))
	}
	b, err := hf.DecodeBatch(data)
	if err != nil {
		return model.Batch{}, invalid(fmt.Errorf("batch %s of version %s: %w", l.batch, l.id, err))
	}
	if b.Policy != l.id.Policy || b.Step != l.id.Number {
		return model.Batch{}, invalid(fmt.Errorf("batch %s of version %s is that of step %d of policy %s", l.batch, l.id, b.Step, b.Policy))
	}
	if err := b.Restrict(t.Constrain); err != nil {
		return model.Batch{}, invalid(fmt.Errorf("batch %s of version %s: %w", l.batch, l.id, err))
	}
	return b, nil
}
