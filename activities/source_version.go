package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
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
	name, _, err := spec.ParseVersion(m.Version)
	if err != nil {
		return m, invalid(fmt.Errorf("model.version: %w", err))
	}
	run, s, err := readSpec(ctx, c.Runs, name)
	if errors.Is(err, record.ErrNotFound) || err == nil && run.Status == record.Refused {
		return m, invalid(fmt.Errorf("model.version: no run %s is on record; `fulgurite runs` lists those that are", name))
	}
	if err != nil {
		return m, err
	}
	source := s.Model
	source.Version, source.Engine, source.WarmStart = m.Version, m.Engine, nil
	return source, nil
}

// copyVersion makes a version of another run version 0 of this run: the same files, with
// a manifest that has the new number.
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
	run, number, err := spec.ParseVersion(reference)
	if err != nil {
		return v, invalid(fmt.Errorf("model.version: %w", err))
	}
	source, err := t.Versions.Version(ctx, model.VersionID{Run: run, Policy: target.ID.Policy, Number: number})
	switch {
	case errors.Is(err, record.ErrNotFound):
		return v, update.Final(fmt.Errorf("model.version: run %s has no version %d; `%s` lists those that it has", run, number, shell.Command("versions", run)))
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
	manifest.Number, manifest.Parent, manifest.Batch = target.ID.Number, target.Parent, ""
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
