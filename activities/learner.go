package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
)

// learner is what updates change: a model.Trainer, which holds a policy, or a
// model.Critic.
type learner interface {
	Checkpoint() model.Checkpoint
	Close()
}

// newLearner makes what the head of c is for.
func newLearner(engine model.Engine, c model.Checkpoint) (learner, error) {
	if c.Architecture.ValueHead {
		return engine.NewCritic(c)
	}
	return engine.NewTrainer(c)
}

// hold takes over the learner of version v, from memory or from its blobs. The
// caller has the turn.
func hold[L learner](ctx context.Context, t *Trainer, engine model.Engine, v model.Version) (L, error) {
	if resident, ok := t.resident.(L); ok && t.manifest != "" && t.manifest == v.Manifest {
		return resident, nil
	}
	var none L
	c, m, err := checkpoint.Load(ctx, t.blobs(), v.Manifest)
	if err != nil {
		return none, err
	}
	if err := matches(m, v); err != nil {
		return none, err
	}
	return take[L](t, engine, c, v.Manifest)
}

// matches refuses a manifest that is not that of v.
func matches(m model.Manifest, v model.Version) error {
	if m.Policy != v.Policy || m.Number != v.Number || m.Parent != v.Parent || (v.Batch != "" && m.Batch != v.Batch) || m.Files[model.WeightsFile].Digest != v.Weights {
		return fmt.Errorf("%w: manifest %s is that of version %d of policy %s, parent %d, batch %q, weights %s",
			checkpoint.ErrCorrupt, v.Manifest, m.Number, m.Policy, m.Parent, m.Batch, m.Files[model.WeightsFile].Digest)
	}
	return nil
}

// take makes a learner of c the resident one. manifest is that of the version
// which c is, empty if it is none.
func take[L learner](t *Trainer, engine model.Engine, c model.Checkpoint, manifest string) (L, error) {
	t.drop() // before there is another: both may not fit
	var none L
	made, err := newLearner(engine, c)
	if err != nil {
		return none, invalid(fmt.Errorf("engine %s: %w", engine.Name(), err))
	}
	wanted, ok := made.(L)
	if !ok {
		made.Close()
		return none, invalid(fmt.Errorf("%w: value_head is %t, which is another kind of model", model.ErrArchitecture, c.Architecture.ValueHead))
	}
	t.resident, t.manifest = wanted, manifest
	t.work.Add(1)
	return wanted, nil
}
