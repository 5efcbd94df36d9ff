package update

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// FirstPolicy makes version 0 of a policy: the base model, warm-started on
// demonstrations if the spec says so. A warm start that was cut off continues from its
// last saved update, with the same result to the bit.
func (m *Maker) FirstPolicy(ctx context.Context, t Target, run Run, codec dialog.Codec) (v model.Version, err error) {
	s := run.Spec
	begin := func(context.Context) (learner, error) {
		start, err := base(s, codec)
		if err != nil {
			return learner{}, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
		return m.use(run.Engine, t.ID, start, "")
	}
	var l learner
	metrics := map[string]float64{}
	if s.Model.WarmStart == nil {
		l, err = begin(ctx)
	} else {
		l, metrics, err = m.warmStart(ctx, t, run, codec, begin)
	}
	if err != nil {
		return v, err
	}
	// The reinforcement learning begins with fresh moments.
	start := l.checkpoint()
	start.Updates, start.Mean, start.Variance = 0, nil, nil
	v, made, err := m.commit(ctx, t, run.Engine, l.policy, start, model.Manifest{Codec: s.Model.Codec, Metrics: metrics})
	if err != nil {
		return v, err
	}
	if s.Model.WarmStart == nil {
		m.manifest = made
	} else {
		m.drop() // its moments are not those of the version
	}
	return v, nil
}

// base is the model that the spec starts from.
func base(s spec.Spec, codec dialog.Codec) (model.Checkpoint, error) {
	if s.Model.Base == "tiny" {
		a := model.Tiny(codec.VocabSize())
		a.MaxPositions = cmp.Or(s.Model.Context, a.MaxPositions)
		return model.Checkpoint{Architecture: a, Weights: a.Init(s.Seed)}, nil
	}
	a, w, err := hf.ReadDirectory(s.Model.Base)
	if err == nil && a.VocabSize < codec.VocabSize() {
		err = fmt.Errorf("vocabulary of %d tokens, but codec %s has %d", a.VocabSize, codec.Name(), codec.VocabSize())
	}
	return model.Checkpoint{Architecture: a, Weights: w}, err
}

// FirstCritic makes version 0 of a policy's critic: version 0 of the policy under a
// value head.
func (m *Maker) FirstCritic(ctx context.Context, t Target, policy string, run Run) (model.Version, error) {
	v, err := m.Versions.Version(ctx, model.VersionID{Run: t.ID.Run, Policy: policy})
	if err != nil {
		return v, fmt.Errorf("read the policy of version %s: %w", t.ID, err)
	}
	start, err := m.loadCheckpoint(ctx, v)
	if err != nil {
		return v, fmt.Errorf("load the policy of version %s: %w", t.ID, unreadable(err, t.ID))
	}
	if start, err = model.CriticOf(start); err != nil {
		return v, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	v, _, err = m.commit(ctx, t, run.Engine, nil, start, model.Manifest{Codec: run.Spec.Model.Codec})
	return v, err
}
