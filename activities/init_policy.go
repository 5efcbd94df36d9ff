package activities

import (
	"cmp"
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// InitPolicy makes version 0: the base model, warm-started on demonstrations if
// the spec says so. A warm start that was cut off goes on from its last saved
// update, with the same result to the bit. Where the spec has a critic, its version
// 0 is made too.
func (t *Trainer) InitPolicy(ctx context.Context, in InitPolicyInput) (_ InitPolicyResult, err error) {
	defer settle(&err)
	l := lineage{id: model.VersionID{Run: in.Run, Policy: in.Policy}, parent: -1}
	v, err := t.once(ctx, l, func(ctx context.Context, run training) (VersionResult, error) {
		return t.initPolicy(ctx, l, run)
	})
	if err != nil {
		return VersionResult{}, err
	}
	return v, t.initCritic(ctx, in)
}

func (t *Trainer) initPolicy(ctx context.Context, l lineage, run training) (VersionResult, error) {
	s := run.spec
	codec, err := t.Codecs.named(s.Model.Codec)
	if err != nil {
		return VersionResult{}, err
	}
	begin := func(context.Context) (model.Trainer, error) {
		start, err := base(s, codec)
		if err != nil {
			return nil, invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
		}
		return t.take(run.engine, start, "")
	}
	var trainer model.Trainer
	metrics := map[string]float64{}
	if s.Model.WarmStart == nil {
		trainer, err = begin(ctx)
	} else {
		trainer, metrics, err = t.warmStart(ctx, l, run, codec, begin)
	}
	if err != nil {
		return VersionResult{}, err
	}
	// The reinforcement learning begins with fresh moments.
	start := trainer.Checkpoint()
	start.Updates, start.Mean, start.Variance = 0, nil, nil
	v, made, err := t.commit(ctx, l, run.engine, trainer, start, model.Manifest{Codec: s.Model.Codec, Metrics: metrics})
	if err != nil {
		return VersionResult{}, err
	}
	if s.Model.WarmStart == nil {
		t.manifest = made
	} else {
		t.drop() // its moments are not those of the version
	}
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, nil
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
