package update

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// Joint records the joint version t of a run with several policies. The version of each policy
// with its number must be on record.
func (m *Maker) Joint(ctx context.Context, t Target, run Run) (model.Version, error) {
	out := model.Version{VersionID: t.ID, Parent: t.Parent, Batch: t.Batch, Metrics: map[string]float64{}, Created: time.Now()}
	manifest := model.JointManifest{Format: model.JointManifestFormat, Number: t.ID.Number, Policies: map[string]model.JointPart{}}
	parts := map[string]model.Version{}
	for _, name := range run.Spec.PolicyNames() {
		id := t.ID
		id.Policy = name
		v, err := m.Versions.Version(ctx, id)
		if err != nil {
			return out, fmt.Errorf("read a part of version %s: %w", t.ID, err)
		}
		parts[name] = v
		manifest.Policies[name] = model.JointPart{Manifest: v.Manifest, Weights: v.Weights}
		for metric, value := range v.Metrics {
			out.Metrics[PolicyMetric(name, metric)] = value
		}
		out.Fingerprint = v.Fingerprint // all of them have the run's engine
		addWork(&out, v)
	}
	text, err := manifest.Encode()
	if err != nil {
		return out, Invalid(fmt.Errorf("version %s: %w", t.ID, err))
	}
	if out.Manifest, err = m.blobs().Put(ctx, text); err != nil {
		return out, fmt.Errorf("store the manifest of version %s: %w", t.ID, err)
	}
	out.Weights = manifest.Weights()
	if out.Scores, err = m.jointScores(ctx, t, run.Spec, parts); err != nil {
		return out, fmt.Errorf("version %s: %w", t.ID, err)
	}
	recorded, _, err := m.Versions.PutVersion(ctx, out)
	if err != nil {
		return recorded, fmt.Errorf("record version %s: %w", t.ID, err)
	}
	return recorded, t.check(recorded)
}

// addWork adds the work for the version of one policy to that for the joint version.
func addWork(to *model.Version, v model.Version) {
	if to.Begun.IsZero() || !v.Begun.IsZero() && v.Begun.Before(to.Begun) {
		to.Begun = v.Begun
	}
	to.Work.Load += v.Work.Load
	to.Work.Score += v.Work.Score
	to.Work.Gradient += v.Work.Gradient
	to.Work.Optimizer += v.Work.Optimizer
	to.Work.Save += v.Work.Save
}

// jointScores stores the scores of all tokens of a batch, which each policy has of its own, in
// the order of the batch. It returns their digest; "" if a policy has none.
func (m *Maker) jointScores(ctx context.Context, t Target, s spec.Spec, parts map[string]model.Version) (string, error) {
	if t.Batch == "" {
		return "", nil
	}
	b, err := m.batch(ctx, t, t.ID.Policy)
	if err != nil {
		return "", err
	}
	left := map[string]model.Scores{} // those that no row has yet
	for _, name := range s.TrainedPolicies() {
		of := b.Of(name)
		if of.Denominators.Tokens == 0 {
			continue
		}
		if parts[name].Scores == "" {
			return "", nil
		}
		file, err := m.blobs().Get(ctx, parts[name].Scores)
		if err != nil {
			return "", fmt.Errorf("read the scores of policy %s: %w", name, err)
		}
		scores, err := hf.DecodeScores(file)
		if err != nil {
			return "", fmt.Errorf("scores of policy %s: %w", name, err)
		}
		if len(scores.Logprobs) != of.Denominators.Tokens {
			return "", fmt.Errorf("policy %s has %d scores for the %d tokens of its rows", name, len(scores.Logprobs), of.Denominators.Tokens)
		}
		left[name] = scores
	}
	all := &tokenScores{Scores: model.Scores{Batch: t.Batch}}
	for _, r := range b.Rows {
		n, own := r.Trained(), left[r.Policy]
		all.Logprobs, all.Entropies = append(all.Logprobs, own.Logprobs[:n]...), append(all.Entropies, own.Entropies[:n]...)
		own.Logprobs, own.Entropies = own.Logprobs[n:], own.Entropies[n:]
		left[r.Policy] = own
	}
	if len(all.Logprobs) == 0 {
		return "", nil
	}
	return all.save(ctx, m)
}

// Unchanged makes version t of a frozen policy: its parent, with another number.
func (m *Maker) Unchanged(ctx context.Context, t Target) (model.Version, error) {
	began := time.Now()
	parent, err := m.parent(ctx, t)
	if err != nil {
		return model.Version{}, err
	}
	text, err := m.blobs().Get(ctx, parent.Manifest)
	if err != nil {
		return model.Version{}, fmt.Errorf("read the manifest of the parent of version %s: %w", t.ID, unreadable(err, t.ID))
	}
	manifest, err := model.ParseManifest(text)
	if err != nil {
		return model.Version{}, fmt.Errorf("manifest of the parent of version %s: %w", t.ID, err)
	}
	manifest.Number, manifest.Parent, manifest.Batch, manifest.Metrics = t.ID.Number, t.Parent, t.Batch, nil
	if text, err = manifest.Encode(); err != nil {
		return model.Version{}, fmt.Errorf("version %s: %w", t.ID, err)
	}
	digest, err := m.blobs().Put(ctx, text)
	if err != nil {
		return model.Version{}, fmt.Errorf("store the manifest of version %s: %w", t.ID, err)
	}
	recorded, _, err := m.Versions.PutVersion(ctx, model.Version{
		VersionID: t.ID, Parent: t.Parent, Manifest: digest, Weights: parent.Weights, Batch: t.Batch, Fingerprint: parent.Fingerprint,
		Created: time.Now(), Begun: began,
	})
	if err != nil {
		return recorded, fmt.Errorf("record version %s: %w", t.ID, err)
	}
	return recorded, t.check(recorded)
}
