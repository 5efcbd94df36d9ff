package update

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// Critic makes version t of a policy's critic from its parent and the returns in the
// step's batch. Like Policy it continues a step that was cut off, with the same result to
// the bit.
func (m *Maker) Critic(ctx context.Context, t Target, policy string, run Run) (model.Version, error) {
	if run.Spec.Critic == nil {
		return model.Version{}, Invalid(fmt.Errorf("spec of run %s: it has no critic", run.Name))
	}
	m.begin()
	parent, err := m.parent(ctx, t)
	if err != nil {
		return model.Version{}, err
	}
	batch, err := m.batch(ctx, t, policy)
	if err != nil {
		return model.Version{}, err
	}
	p, u, err := m.criticPlan(t, run, parent, batch)
	if err != nil {
		return model.Version{}, err
	}
	if p.updates == 0 { // nothing to learn
		return m.execute(ctx, p, "critic.learning_rate", func(tally) map[string]float64 { return map[string]float64{} })
	}
	err = m.timeScores(func() error {
		start, err := p.begin(ctx) // also if the step continues: the old values are those of the parent
		if err == nil {
			u.old, err = m.values(ctx, start.critic, batch.EngineRows())
		}
		return err
	})
	if err != nil {
		return model.Version{}, fmt.Errorf("version %s: %w", t.ID, err)
	}
	return m.execute(ctx, p, "critic.learning_rate", u.metrics)
}

// criticPlan returns the updates from parent to version t.
func (m *Maker) criticPlan(t Target, run Run, parent model.Version, batch model.Batch) (updatePlan, *criticUpdate, error) {
	s, training := run.Spec, run.Spec.Training
	training.Passes = s.Critic.Passes
	training.Optimizer.LearningRate, training.Optimizer.Schedule = s.Critic.LearningRate, spec.ScheduleConstant
	u := &criticUpdate{
		batch: batch, loss: credit.ValueLoss{Clip: s.Critic.Clip}, adamW: adamW(training.Optimizer, t.ID.Number, 1),
		updates: minibatches(batch, training, s.Seed, t.ID.Number), work: &m.work,
	}
	if len(u.updates) > 0 && batch.Rows[0].Returns == nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("batch %s of version %s has no returns to learn", t.Batch, t.ID))
	}
	if err := u.adamW.Check(); err != nil {
		return updatePlan{}, nil, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	key, err := basis(struct {
		Engine, Fingerprint, Parent, Batch string
		Seed                               uint64
		Step                               int
		Training                           spec.Training
		Critic                             spec.Critic
	}{run.Engine.Name(), run.Engine.Fingerprint(), parent.Manifest, t.Batch, s.Seed, t.ID.Number, training, *s.Critic})
	return updatePlan{
		Target: t, run: run, codec: s.Model.Codec, basis: key, updates: len(u.updates), update: u.update,
		begin: m.beginFrom(parent, t, run),
	}, u, err
}
