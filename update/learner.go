package update

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
)

// learner is the model that updates change: a policy or a critic. The other is nil.
type learner struct {
	policy model.Trainer
	critic model.Critic
}

// checkpoint returns the current state. It has to be saved before the next update.
func (l learner) checkpoint(ctx context.Context) (model.Checkpoint, error) {
	var of interface{ Checkpoint() model.Checkpoint } = l.policy
	if l.critic != nil {
		of = l.critic
	}
	switch of := of.(type) {
	case model.Saver:
		return of.Save(ctx)
	case model.Viewer:
		return of.View(), nil
	}
	return of.Checkpoint(), nil
}

// optimizerTime returns how much of the time of all updates so far was not spent on
// gradients; 0 if the engine does not know.
func (l learner) optimizerTime() time.Duration {
	var of any = l.policy
	if l.critic != nil {
		of = l.critic
	}
	if timer, ok := of.(model.OptimizerTimer); ok {
		return timer.OptimizerTime()
	}
	return 0
}

func (l learner) close() {
	if l.critic != nil {
		l.critic.Close()
	}
	if l.policy != nil {
		l.policy.Close()
	}
}

// load makes version v the resident learner for a run, unless it is that already.
func (m *Maker) load(ctx context.Context, run Run, v model.Version) (learner, error) {
	if m.manifest != "" && m.manifest == v.Manifest && m.moments == run.moments() {
		return m.resident, nil
	}
	began := time.Now()
	defer func() { m.spent.Load += time.Since(began) }()
	m.drop() // before the next one is loaded, because both may not fit in memory
	c, err := m.loadCheckpoint(ctx, v)
	if err != nil {
		return learner{}, err
	}
	return m.use(run, v.VersionID, c, v.Manifest)
}

// size returns the size of the tensors of c in bytes.
func size(c model.Checkpoint) int64 {
	sets := 1
	if c.Updates > 0 {
		sets = 3 // weights and two moments
	}
	return int64(sets) * int64(c.Architecture.Parameters()) * 4
}

// loadCheckpoint reads a version's blobs. It returns an error if the manifest belongs to
// another version.
func (m *Maker) loadCheckpoint(ctx context.Context, v model.Version) (model.Checkpoint, error) {
	return m.loaded(ctx, v, checkpoint.Load)
}

// loadWeights works like loadCheckpoint, but without the moments.
func (m *Maker) loadWeights(ctx context.Context, v model.Version) (model.Checkpoint, error) {
	c, err := m.loaded(ctx, v, checkpoint.LoadWeights)
	c.Updates = 0
	return c, err
}

func (m *Maker) loaded(
	ctx context.Context, v model.Version, load func(context.Context, checkpoint.Blobs, string) (model.Checkpoint, model.Manifest, error),
) (model.Checkpoint, error) {
	c, mf, err := load(ctx, m.blobs(), v.Manifest)
	if err != nil {
		return c, err
	}
	if mf.Policy != v.Policy || mf.Number != v.Number || mf.Parent != v.Parent || (v.Batch != "" && mf.Batch != v.Batch) || mf.Weights() != v.Weights {
		return c, fmt.Errorf("%w: manifest %s is that of version %d of policy %s, parent %d, batch %q, weights %s",
			checkpoint.ErrCorrupt, v.Manifest, mf.Number, mf.Policy, mf.Parent, mf.Batch, mf.Weights())
	}
	return c, nil
}

// moments returns the format in which the run's engine holds moments.
func (r Run) moments() string {
	if r.Spec.Training.Optimizer.Moments == model.MomentsInt8 {
		return model.MomentsInt8
	}
	return model.MomentsF32
}

// use makes a learner of c the resident one, for the policy or critic of id. manifest is
// the manifest of c's version. It is empty if c is not a version.
func (m *Maker) use(run Run, id model.VersionID, c model.Checkpoint, manifest string) (l learner, err error) {
	m.drop()
	engine := run.Engine
	c.Moments = run.moments()
	critic := id.Policy == model.CriticPolicy
	switch {
	case c.Architecture.ValueHead != critic:
		err = fmt.Errorf("%w: value_head is %t, which is another kind of model", model.ErrArchitecture, c.Architecture.ValueHead)
		return learner{}, Invalid(err)
	case critic:
		l.critic, err = engine.NewCritic(c)
	default:
		l.policy, err = engine.NewTrainer(c)
	}
	if err != nil {
		return learner{}, engineError(fmt.Errorf("engine %s: %w", engine.Name(), err))
	}
	m.resident, m.manifest, m.held, m.moments = l, manifest, size(c), c.Moments
	m.work.Add(1)
	memory.Dropped(size(c)) // the engine has copied it
	return l, nil
}
