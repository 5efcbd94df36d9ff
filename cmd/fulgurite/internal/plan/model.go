package plan

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// readModel reads the architecture from the files of model.base. files is nil unless only
// engine torch can compute the model.
func (p *Plan) readModel(codec dialog.Codec) (a model.Architecture, files *hf.Files, err error) {
	m := p.Spec.Model
	a = model.Tiny(codec.VocabSize())
	a.MaxPositions = m.Context
	if m.Base == spec.BaseTiny {
		return a, nil, p.checkAdapters(a, codec)
	}
	if m.Engine == spec.EngineTorch {
		if files, err = hf.OpenFiles(m.Base); err != nil {
			return a, nil, terminal.Usage(fmt.Errorf("model.base: %w", err))
		}
	}
	if files != nil {
		a, err = files.Architecture, p.checkFiles(files.Architecture)
	} else {
		var stored *hf.Stored
		if stored, err = hf.OpenDirectory(m.Base); err == nil {
			a = stored.Architecture
			err = stored.Close()
		}
	}
	if err != nil {
		return a, nil, terminal.Usage(fmt.Errorf("model.base: %w", err))
	}
	if a.VocabSize < codec.VocabSize() {
		return a, nil, terminal.Usagef("model.base: %s has a vocabulary of %d tokens, but codec %s has %d: give the model's own codec (model.codec)",
			m.Base, a.VocabSize, m.Codec, codec.VocabSize())
	}
	return a, files, p.checkAdapters(a, codec)
}

// checkAdapters checks the adapter of each policy.
func (p *Plan) checkAdapters(a model.Architecture, codec dialog.Codec) error {
	if len(p.Spec.Policies) == 0 {
		return p.checkAdapter(a, codec)
	}
	p.tokensOf = map[string][]int32{}
	for _, name := range p.Spec.PolicyNames() {
		one := Plan{Spec: p.Spec.ForPolicy(name)}
		if err := one.checkAdapter(a, codec); err != nil {
			return terminal.Usage(fmt.Errorf("policy %s: %w", name, err))
		}
		p.tokensOf[name] = one.tokens
	}
	return nil
}

// checkAdapter finds the tokens whose rows are trained. It checks them, how the base of an
// adapter is rounded, and the adapter that version 0 starts from.
func (p *Plan) checkAdapter(a model.Architecture, codec dialog.Codec) (err error) {
	l := p.Spec.Model.LoRA
	if l == nil {
		return nil
	}
	if p.tokens, err = update.TrainedTokens(p.Spec.Model, codec); err == nil {
		if err = update.AdapterOf(*l, p.tokens).CheckTokens(update.WithCodec(a, codec)); err != nil {
			err = fmt.Errorf("model.lora.trainable_tokens: %w", err)
		}
	}
	if err != nil {
		return terminal.Usage(err)
	}
	if a.Config != "" {
		return nil
	}
	if err := precisionOf(*l).Check(a); err != nil {
		return terminal.Usage(fmt.Errorf("model.lora.base_precision: %w", err))
	}
	if l.Adapter == "" {
		return nil
	}
	if _, err := update.ReadAdapter(p.Spec.Model, &model.Base{Architecture: a}); err != nil {
		return terminal.Usage(err)
	}
	return nil
}

// checkFiles returns an error if the spec needs an engine of ours for a model that only
// transformers knows.
func (p *Plan) checkFiles(a model.Architecture) error {
	s := p.Spec
	if s.HasCritic() {
		return fmt.Errorf("model_type %q has no critic here: leave critic out, or take a model of type llama, mistral, qwen2 or qwen3", a.ModelType())
	}
	if s.Sampling.Server == nil && s.Sampling.Engine != spec.EngineTorch {
		return fmt.Errorf("model_type %q is sampled by engine torch or a server of others: leave sampling.engine out", a.ModelType())
	}
	for _, of := range ofPolicies(s) {
		if l := of.Model.LoRA; l != nil {
			if err := update.AdapterOf(*l, nil).CheckFor(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// inspect asks the program of engine torch whether it knows the model, and which layers
// an adapter adapts.
func (p *Plan) inspect(ctx context.Context, engine model.Engine) error {
	e, ok := engine.(interface {
		Inspect(ctx context.Context, a model.Architecture, l *model.LoRA) (torch.Model, error)
	})
	if !ok || p.architecture.Config == "" {
		return nil
	}
	m, err := e.Inspect(ctx, p.architecture, p.adapter())
	if err != nil {
		return fmt.Errorf("model.base: %w", err)
	}
	p.Parameters, p.Targets = int(m.Parameters), m.Targets
	return nil
}

// adapter returns the adapter that is trained, the largest one of several policies. It is nil if
// the complete model is trained.
func (p *Plan) adapter() *model.LoRA {
	of, tokens := p.Spec, p.tokens
	if p.largest != "" {
		of, tokens = of.ForPolicy(p.largest), p.tokensOf[p.largest]
	}
	if of.Model.LoRA == nil {
		return nil
	}
	adapter := update.AdapterOf(*of.Model.LoRA, tokens)
	return &adapter
}

// Room describes the GPU memory that training with engine torch takes on the given number
// of ranks.
func (p *Plan) Room(ranks int) torch.Room {
	l, of := p.adapter(), p.Spec.ForPolicy(p.largest)
	r := torch.RoomOf(p.architecture, l, of.Training.Optimizer.Moments)
	if r.Single { // its files say how large it is
		r.Parameters = int64(p.Parameters)
		if l == nil {
			r.Offered = p.offeredParameters
		} else {
			r.Adapter = p.trainedNumbers(p.largest)
		}
	}
	r.Ranks, r.Samples = ranks, p.Spec.Sampling.Engine == spec.EngineTorch
	return r
}
