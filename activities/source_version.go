package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// sourceModel returns the model of a spec that names a version of another run: the model
// that the other run has on record, so that the version keeps the codec that it was
// trained with. The engine stays the spec's own. Other specs keep their model.
func (c *Coordinator) sourceModel(ctx context.Context, m spec.Model) (spec.Model, error) {
	if m.Version == "" {
		return m, nil
	}
	name, err := spec.ParseVersion(m.Version)
	if err != nil {
		return m, invalid(fmt.Errorf("model.version: %w", err))
	}
	run, s, err := readSpec(ctx, c.Runs, name.Run)
	if errors.Is(err, record.ErrForgotten) {
		return m, invalid(fmt.Errorf("model.version: %w", err))
	}
	if errors.Is(err, record.ErrNotFound) || err == nil && run.Status == record.Refused {
		return m, invalid(fmt.Errorf("model.version: no run %s is on record; `fulgurite runs` lists those that are", name.Run))
	}
	if err != nil {
		return m, err
	}
	source := s.ForPolicy(name.Policy).Model
	source.Version, source.Engine, source.WarmStart = m.Version, m.Engine, nil
	return source, nil
}

// sourcePrompts returns a spec that names a version of the prompts of another run with the
// texts of that version. Other specs are returned unchanged.
func (c *Coordinator) sourcePrompts(ctx context.Context, s spec.Spec) (spec.Spec, error) {
	if s.Prompts == nil || s.Prompts.Version == "" {
		return s, nil
	}
	version, err := spec.ParseVersion(s.Prompts.Version)
	if err != nil {
		return s, invalid(fmt.Errorf("prompts.version: %w", err))
	}
	name, number := version.Run, version.Number
	run, source, err := readSpec(ctx, c.Runs, name)
	switch {
	case errors.Is(err, record.ErrForgotten):
		return s, invalid(fmt.Errorf("prompts.version: %w", err))
	case errors.Is(err, record.ErrNotFound) || err == nil && run.Status == record.Refused:
		return s, invalid(fmt.Errorf("prompts.version: no run %s is on record; `fulgurite runs` lists those that are", name))
	case err != nil:
		return s, err
	case source.Prompts == nil:
		return s, invalid(fmt.Errorf("prompts.version: run %s has no prompts; name a run whose spec has some", name))
	}
	texts := slices.Clone(source.Prompts.Texts)
	if number > 0 {
		if err := c.readPromptVersion(ctx, name, number, texts); err != nil {
			return s, err
		}
	}
	if s, err = s.TakePrompts(texts); err != nil {
		return s, invalid(err)
	}
	return s, nil
}

// readPromptVersion puts the texts of a version into the prompts that a run began with.
func (c *Coordinator) readPromptVersion(ctx context.Context, run string, number int, texts []spec.PromptText) error {
	v, err := c.Ledger.PromptVersion(ctx, run, number)
	if errors.Is(err, record.ErrNotFound) {
		return invalid(fmt.Errorf("prompts.version: run %s has no version %d of its prompts; `%s` lists those that it has", run, number, shell.Command("prompts", run)))
	}
	if err != nil {
		return fmt.Errorf("read prompts.version: %w", err)
	}
	data, err := c.Blobs.Get(ctx, v.Prompts)
	if err != nil {
		return fmt.Errorf("read prompts.version: %w", err)
	}
	set, err := prompts.Decode(data)
	if err != nil {
		return fmt.Errorf("decode version %d of the prompts of run %s: %w", number, run, err)
	}
	for i := range texts {
		if texts[i].Text, err = set.Prompts().Text(texts[i].Name); err != nil {
			return fmt.Errorf("version %d of the prompts of run %s: %w", number, run, err)
		}
	}
	return nil
}

// copyVersion makes a version of another run version 0 of this run: the same files, with
// a manifest that has the new number, without the optimizer's moments.
func (t *Trainer) copyVersion(ctx context.Context, target update.Target, reference string) (InitPolicyResult, error) {
	v, ok, err := update.Existing(ctx, t.Versions, target)
	if !ok && err == nil {
		v, err = t.putCopy(ctx, target, reference)
	}
	if err != nil {
		return InitPolicyResult{}, err
	}
	return InitPolicyResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, nil
}

func (t *Trainer) putCopy(ctx context.Context, target update.Target, reference string) (v model.Version, err error) {
	name, err := spec.ParseVersion(reference)
	if err != nil {
		return v, invalid(fmt.Errorf("model.version: %w", err))
	}
	policy, err := t.sourcePolicy(ctx, name, target.ID.Policy)
	if err != nil {
		return v, err
	}
	source, err := t.Versions.Version(ctx, model.VersionID{Run: name.Run, Policy: policy, Number: name.Number})
	switch {
	case errors.Is(err, record.ErrNotFound) && name.Policy != "":
		return v, update.Final(fmt.Errorf("model.version: run %s has no version %d of policy %s; `%s` lists those that it has", name.Run, name.Number, name.Policy, shell.Command("versions", name.Run)))
	case errors.Is(err, record.ErrNotFound):
		return v, update.Final(fmt.Errorf("model.version: run %s has no version %d; `%s` lists those that it has", name.Run, name.Number, shell.Command("versions", name.Run)))
	case err != nil:
		return v, fmt.Errorf("read model.version: %w", err)
	case !source.Collected.IsZero():
		return v, update.Final(fmt.Errorf("model.version: %s: %w; training.keep says which versions stay: name another, and start another run", reference, model.ErrCollected))
	}
	text, err := t.Blobs.Get(ctx, source.Manifest)
	if err != nil {
		return v, fmt.Errorf("read the manifest of %s: %w", reference, err)
	}
	manifest, err := model.ParseManifest(text)
	if err != nil {
		return v, fmt.Errorf("manifest of %s: %w", reference, err)
	}
	manifest.Policy, manifest.Number, manifest.Parent, manifest.Batch = target.ID.Policy, target.ID.Number, target.Parent, ""
	manifest.Updates = 0 // a run begins with fresh moments
	delete(manifest.Files, model.OptimizerFile)
	delete(manifest.Files, model.Optimizer8File)
	if text, err = manifest.Encode(); err != nil {
		return v, err
	}
	digest, err := t.Blobs.Put(ctx, text)
	if err != nil {
		return v, fmt.Errorf("store the manifest of version %s: %w", target.ID, err)
	}
	v, _, err = t.Versions.PutVersion(ctx, model.Version{
		VersionID: target.ID, Parent: target.Parent, Manifest: digest, Weights: source.Weights, Fingerprint: source.Fingerprint, Metrics: source.Metrics,
	})
	return v, err
}

// sourcePolicy returns the policy of another run from which a policy of this run starts: the
// one that the reference names, or the one of the same name, or the only one.
func (t *Trainer) sourcePolicy(ctx context.Context, from spec.VersionName, policy string) (string, error) {
	if from.Policy != "" {
		return from.Policy, nil
	}
	_, s, err := readSpec(ctx, t.Runs, from.Run)
	switch names := s.PolicyNames(); {
	case errors.Is(err, record.ErrNotFound):
		return "", update.Final(fmt.Errorf("model.version: no run %s is on record", from.Run))
	case err != nil:
		return "", err
	case names == nil:
		return model.DefaultPolicy, nil
	case slices.Contains(names, policy):
		return policy, nil
	default:
		return "", update.Final(fmt.Errorf("model.version: run %s has the policies %s, and none is called %s: name one, such as %s:%s@%d",
			from.Run, strings.Join(names, ", "), policy, from.Run, names[0], from.Number))
	}
}
