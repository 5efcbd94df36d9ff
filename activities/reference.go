package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
)

// reference is the frozen policy that a penalty holds the trained one to: version 0
// of its run. It stays in memory between the steps of a run that asks for it, beside
// the policy that is trained, and goes with the first step of one that does not.
type reference struct {
	scorer   model.Trainer
	manifest string
}

func (r *reference) drop() {
	if r.scorer != nil {
		r.scorer.Close()
	}
	*r = reference{}
}

// frozen is the reference of the version that l makes.
func (t *Trainer) frozen(ctx context.Context, l lineage, engine model.Engine) (model.Trainer, error) {
	id := l.id
	id.Number = 0
	v, err := t.Versions.Version(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the reference %s: %w", id, err)
	}
	if t.reference.scorer != nil && t.reference.manifest == v.Manifest {
		return t.reference.scorer, nil
	}
	t.reference.drop() // before there is another: both may not fit
	c, m, err := checkpoint.Load(ctx, t.blobs(), v.Manifest)
	if err == nil {
		err = matches(m, v)
	}
	if err != nil {
		return nil, fmt.Errorf("load the reference %s: %w", id, unreadable(err, l.id))
	}
	c.Updates, c.Mean, c.Variance = 0, nil, nil // nothing will be trained
	scorer, err := engine.NewTrainer(c)
	if err != nil {
		return nil, invalid(fmt.Errorf("reference %s: engine %s: %w", id, engine.Name(), err))
	}
	t.reference = reference{scorer, v.Manifest}
	t.work.Add(1)
	return scorer, nil
}
