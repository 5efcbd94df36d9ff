package update

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// FirstPolicy makes version 0 of a policy: the base model, with a warm start on
// demonstrations if the spec has one. A warm start that was cut off continues from its
// last saved update, with the same result to the bit.
func (m *Maker) FirstPolicy(ctx context.Context, t Target, run Run, codec dialog.Codec) (v model.Version, err error) {
	m.begin()
	s := run.Spec
	begin := func(ctx context.Context) (learner, error) {
		began := time.Now()
		defer func() { m.spent.Load += time.Since(began) }()
		if s.Model.LoRA != nil {
			start, err := m.adapt(ctx, t.ID, s, codec)
			if err != nil {
				return learner{}, fmt.Errorf("base of version %s: %w", t.ID, err)
			}
			return m.use(run, t.ID, start, "")
		}
		start, err := base(s, codec)
		if err != nil {
			return learner{}, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
		return m.use(run, t.ID, start, "")
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
	start, err := l.checkpoint(ctx)
	if err != nil {
		return v, fmt.Errorf("version %s: %w", t.ID, err)
	}
	defer start.Release()
	start = start.WithoutMoments()
	canary, err := m.canary(ctx, t, run.Engine, l.policy, start, canaryOf(run.Spec, model.Batch{}))
	if err != nil {
		return v, err
	}
	v, made, err := m.commit(ctx, t, run.Engine, outcome{state: start, manifest: model.Manifest{Codec: s.Model.Codec, Metrics: metrics}, canary: canary})
	if err != nil {
		return v, err
	}
	if s.Model.WarmStart == nil {
		m.manifest = made
	} else {
		m.drop() // its moments do not belong to the version
	}
	return v, nil
}

// base returns the model that the spec starts from.
func base(s spec.Spec, codec dialog.Codec) (model.Checkpoint, error) {
	if s.Model.Base == spec.BaseTiny {
		return tiny(s, codec), nil
	}
	if stored, err := openFiles(s); stored != nil || err != nil {
		if err == nil {
			err = checkVocabulary(stored.Architecture, codec)
		}
		if err != nil {
			return model.Checkpoint{}, err
		}
		return model.Checkpoint{Architecture: WithCodec(stored.Architecture, codec), Files: &model.Files{Weights: stored.Files}}, nil
	}
	a, w, err := hf.ReadDirectory(s.Model.Base)
	if err == nil {
		err = checkVocabulary(a, codec)
	}
	return model.Checkpoint{Architecture: WithCodec(a, codec), Weights: w}, err
}

// openFiles opens the files of a model that only engine torch computes. It returns nil
// unless the spec's engine is torch.
func openFiles(s spec.Spec) (*hf.Files, error) {
	if s.Model.Engine != spec.EngineTorch {
		return nil, nil
	}
	return hf.OpenFiles(s.Model.Base)
}

// adaptFiles stores the files of a model that only engine torch computes, as the base
// that all versions of a run share.
func (m *Maker) adaptFiles(ctx context.Context, id model.VersionID, s spec.Spec, l model.LoRA, stored *hf.Files, codec dialog.Codec) (model.Checkpoint, error) {
	err := checkVocabulary(stored.Architecture, codec)
	if err == nil {
		err = l.CheckFor(stored.Architecture)
	}
	if err != nil {
		return model.Checkpoint{}, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
	}
	a := WithCodec(stored.Architecture, codec)
	base, err := checkpoint.SaveBaseFiles(ctx, m.noted(id), a, stored.Files)
	if err != nil {
		return model.Checkpoint{}, err
	}
	return model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: base}, Seed: s.Seed}, nil
}

func tiny(s spec.Spec, codec dialog.Codec) model.Checkpoint {
	a := model.Tiny(codec.VocabSize())
	a.MaxPositions = cmp.Or(s.Model.Context, a.MaxPositions)
	return model.Checkpoint{Architecture: a, Weights: a.Init(s.Seed)}
}

func checkVocabulary(a model.Architecture, codec dialog.Codec) error {
	if a.VocabSize < codec.VocabSize() {
		return fmt.Errorf("vocabulary of %d tokens, but codec %s has %d", a.VocabSize, codec.Name(), codec.VocabSize())
	}
	return nil
}

// adapt stores the model that the spec starts from as the base that all versions of a run
// share, one tensor at a time. It returns the model with the adapter that the spec names
// or, if it names none, with a new one, which changes nothing yet.
func (m *Maker) adapt(ctx context.Context, id model.VersionID, s spec.Spec, codec dialog.Codec) (start model.Checkpoint, err error) {
	if s, err = WithAdapter(s); err != nil { // its file may have changed since the run began
		return start, err
	}
	tokens, err := TrainedTokens(s.Model, codec)
	if err != nil {
		return start, err
	}
	l := AdapterOf(*s.Model.LoRA, tokens)
	var tensor func(name string) (model.Tensor, error)
	if s.Model.Base == spec.BaseTiny {
		start = tiny(s, codec)
		tensor = start.Weights.Tensor
	} else {
		files, err := openFiles(s)
		if err != nil {
			return start, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
		if files != nil {
			return m.adaptFiles(ctx, id, s, l, files, codec)
		}
		stored, err := hf.OpenDirectory(s.Model.Base)
		if err == nil {
			defer func() { _ = stored.Close() }() // nothing was written
			start.Architecture, tensor = WithCodec(stored.Architecture, codec), stored.Tensor
			err = checkVocabulary(stored.Architecture, codec)
		}
		if err != nil {
			return start, Invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
	}
	if err := l.Precision().Check(start.Architecture); err != nil {
		return start, Invalid(fmt.Errorf("model.lora.base_precision: %w", err))
	}
	if err := l.CheckTokens(start.Architecture); err != nil {
		return start, Invalid(fmt.Errorf("model.lora.trainable_tokens: %w", err))
	}
	base, err := checkpoint.SaveBase(ctx, m.noted(id), start.Architecture, l.Precision(), tensor)
	if err != nil {
		return start, err
	}
	start = model.Checkpoint{Architecture: start.Architecture, Adapter: &model.Adapter{LoRA: l, Base: base}}
	if s.Model.LoRA.Adapter != "" {
		start.Weights, err = ReadAdapter(s.Model, base)
	} else {
		start.Weights, err = start.Adapter.Init(start.Architecture, s.Seed)
	}
	return start, err
}

// FirstCritic makes version 0 of a policy's critic: version 0 of the policy with a value
// head.
func (m *Maker) FirstCritic(ctx context.Context, t Target, policy string, run Run) (model.Version, error) {
	m.begin()
	v, err := m.Versions.Version(ctx, model.VersionID{Run: t.ID.Run, Policy: policy})
	if err != nil {
		return v, fmt.Errorf("read the policy of version %s: %w", t.ID, err)
	}
	start, err := m.loadWeights(ctx, v)
	if err != nil {
		return v, fmt.Errorf("load the policy of version %s: %w", t.ID, unreadable(err, t.ID))
	}
	if start, err = model.CriticOf(start); err != nil {
		return v, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	v, _, err = m.commit(ctx, t, run.Engine, outcome{state: start, manifest: model.Manifest{Codec: run.Spec.Model.Codec}})
	return v, err
}
