package update

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
)

// learner is the model that updates change: a policy or a critic. The other is nil.
type learner struct {
	policy model.Trainer
	critic model.Critic
}

func (l learner) checkpoint() model.Checkpoint {
	if l.critic != nil {
		return l.critic.Checkpoint()
	}
	return l.policy.Checkpoint()
}

func (l learner) close() {
	if l.critic != nil {
		l.critic.Close()
	}
	if l.policy != nil {
		l.policy.Close()
	}
}

// load makes version v the resident learner, unless it is that already.
func (m *Maker) load(ctx context.Context, engine model.Engine, v model.Version) (learner, error) {
	if m.manifest != "" && m.manifest == v.Manifest {
		return m.resident, nil
	}
	c, err := m.loadCheckpoint(ctx, v)
	if err != nil {
		return learner{}, err
	}
	return m.use(engine, v.VersionID, c, v.Manifest)
}

// loadCheckpoint reads a version's blobs, and refuses a manifest of another version.
func (m *Maker) loadCheckpoint(ctx context.Context, v model.Version) (model.Checkpoint, error) {
	c, mf, err := checkpoint.Load(ctx, m.blobs(), v.Manifest)
	if err != nil {
		return c, err
	}
	if mf.Policy != v.Policy || mf.Number != v.Number || mf.Parent != v.Parent || (v.Batch != "" && mf.Batch != v.Batch) || mf.Files[model.WeightsFile].Digest != v.Weights {
		return c, fmt.Errorf("%w: manifest %s is that of version %d of policy %s, parent %d, batch %q, weights %s",
			checkpoint.ErrCorrupt, v.Manifest, mf.Number, mf.Policy, mf.Parent, mf.Batch, mf.Files[model.WeightsFile].Digest)
	}
	return c, nil
}

// use makes a learner of c the resident one, for the policy or critic of id. manifest
// is that of the version that c is, empty if it is none.
func (m *Maker) use(engine model.Engine, id model.VersionID, c model.Checkpoint, manifest string) (l learner, err error) {
	m.drop() // before there is another: both may not fit
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
		return learner{}, Invalid(fmt.Errorf("engine %s: %w", engine.Name(), err))
	}
	m.resident, m.manifest = l, manifest
	m.work.Add(1)
	return l, nil
}
