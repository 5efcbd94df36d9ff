package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
)

// initCritic makes version 0 of the critic, if the spec has one: version 0 of the
// policy under a value head.
func (t *Trainer) initCritic(ctx context.Context, in InitPolicyInput) error {
	run, err := t.Runs.Run(ctx, in.Run)
	if err != nil {
		return fmt.Errorf("read run %s: %w", in.Run, err)
	}
	s, err := decodeSpec(run)
	if err != nil || s.Critic == nil {
		return err
	}
	l := lineage{id: model.VersionID{Run: in.Run, Policy: model.CriticPolicy}, parent: -1}
	_, err = t.once(ctx, l, func(ctx context.Context, run training) (VersionResult, error) {
		policy, err := t.Versions.Version(ctx, model.VersionID{Run: in.Run, Policy: in.Policy})
		if err != nil {
			return VersionResult{}, fmt.Errorf("read the policy of version %s: %w", l.id, err)
		}
		start, m, err := checkpoint.Load(ctx, t.blobs(), policy.Manifest)
		if err == nil {
			err = matches(m, policy)
		}
		if err != nil {
			return VersionResult{}, fmt.Errorf("load the policy of version %s: %w", l.id, unreadable(err, l.id))
		}
		if start, err = model.CriticOf(start); err != nil {
			return VersionResult{}, invalid(fmt.Errorf("version %s: %w", l.id, err))
		}
		v, _, err := t.commitAs(ctx, l, run.engine, model.Manifest{Codec: s.Model.Codec}, t.withoutCanary(ctx, start))
		return VersionResult{Number: v.Number, Weights: v.Weights}, err
	})
	return err
}
