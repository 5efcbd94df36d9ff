package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/update"
)

// InitPolicy makes version 0: the base model, with a warm start on demonstrations if the
// spec has one, or the version of another run that the spec names. A warm start that was
// interrupted continues from its last saved update, with the same result to the bit. If
// the spec has a critic, InitPolicy makes the critic's version 0, too.
func (t *Trainer) InitPolicy(ctx context.Context, in InitPolicyInput) (_ InitPolicyResult, err error) {
	defer temporalError(&err)
	target := update.Target{ID: model.VersionID{Run: in.Run, Policy: in.Policy}, Parent: -1}
	_, s, err := readSpec(ctx, t.Runs, in.Run)
	if err != nil {
		return InitPolicyResult{}, err
	}
	if s.Model.Version != "" {
		return t.copyVersion(ctx, target, s.Model.Version)
	}
	v, err := t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		codec, err := t.Codecs.named(run.Spec.Model.Codec)
		if err != nil {
			return model.Version{}, err
		}
		return m.FirstPolicy(ctx, target, run, codec)
	})
	if err != nil {
		return InitPolicyResult{}, err
	}
	if s.Critic == nil {
		return v, nil
	}
	return v, t.initCritic(ctx, in)
}

// initCritic makes version 0 of the critic.
func (t *Trainer) initCritic(ctx context.Context, in InitPolicyInput) error {
	target := update.Target{ID: model.VersionID{Run: in.Run, Policy: model.CriticPolicy}, Parent: -1}
	_, err := t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		return m.FirstCritic(ctx, target, in.Policy, run)
	})
	return err
}

// TrainStep makes version Step from version Step−1 and the step's batch. If the version
// exists already, TrainStep returns it. A step that was interrupted continues from its
// last saved update, with the same result to the bit.
func (t *Trainer) TrainStep(ctx context.Context, in TrainStepInput) (_ TrainStepResult, err error) {
	defer temporalError(&err)
	target := update.Target{ID: model.VersionID{Run: in.Run, Policy: in.Policy, Number: in.Step}, Parent: in.Step - 1, Batch: in.Batch}
	return t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		run, err := set(run, in.Set)
		if err != nil {
			return model.Version{}, err
		}
		return m.Policy(ctx, target, run)
	})
}

// TrainCritic makes version Step of the critic from its version Step−1 and the returns in
// the step's batch. Like TrainStep it is idempotent.
func (t *Trainer) TrainCritic(ctx context.Context, in TrainCriticInput) (_ TrainCriticResult, err error) {
	defer temporalError(&err)
	target := update.Target{ID: model.VersionID{Run: in.Run, Policy: model.CriticPolicy, Number: in.Step}, Parent: in.Step - 1, Batch: in.Batch}
	return t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		run, err := set(run, in.Set)
		if err != nil {
			return model.Version{}, err
		}
		return m.Critic(ctx, target, in.Policy, run)
	})
}

// set applies the changes of the run's spec that were made during the run.
func set(run update.Run, numbers map[string]float64) (_ update.Run, err error) {
	if len(numbers) == 0 {
		return run, nil
	}
	if run.Spec, err = run.Spec.Set(numbers); err != nil {
		err = invalid(fmt.Errorf("spec of run %s: %w", run.Name, err))
	}
	return run, err
}
