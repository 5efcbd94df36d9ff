package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// Engines finds an engine by its name in a spec.
type Engines func(name string) (model.Engine, error)

// Trainer runs the activities of the GPU queue. It keeps the last policy it
// trained in memory and goes on from there when the next step asks for it;
// otherwise it loads the parent version, with the same result to the bit.
type Trainer struct {
	Runs     Runs
	Versions Versions
	Blobs    Blobs
	Engines  Engines
	Codecs   Codecs

	mu       sync.Mutex // updates are made one at a time
	resident model.Trainer
	manifest string // of the version that resident holds; empty when it is none
}

// Close frees the policy in memory.
func (t *Trainer) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop()
}

func (t *Trainer) drop() {
	if t.resident != nil {
		t.resident.Close()
	}
	t.resident, t.manifest = nil, ""
}

// training is what an update needs to know of its run.
type training struct {
	record.Run
	spec   spec.Spec
	engine model.Engine
}

// once returns version id if it stands, else what produce makes; one at a time.
func (t *Trainer) once(ctx context.Context, id model.VersionID, produce func(training) (VersionResult, error)) (VersionResult, error) {
	if v, ok, err := t.existing(ctx, id); ok || err != nil {
		return v, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok, err := t.existing(ctx, id); ok || err != nil {
		return v, err // it was made while this execution waited for its turn
	}
	run, err := t.Runs.Run(ctx, id.Run)
	if err != nil {
		return VersionResult{}, fmt.Errorf("read run %s: %w", id.Run, err)
	}
	s, err := decodeSpec(run)
	if err != nil {
		return VersionResult{}, err
	}
	engine, err := t.Engines(s.Model.Engine)
	if err != nil {
		return VersionResult{}, invalid(err)
	}
	return produce(training{run, s, engine})
}

// existing returns the version if it stands already.
func (t *Trainer) existing(ctx context.Context, id model.VersionID) (VersionResult, bool, error) {
	v, err := t.Versions.Version(ctx, id)
	switch {
	case errors.Is(err, trace.ErrNotFound):
		return VersionResult{}, false, nil
	case err != nil:
		return VersionResult{}, false, fmt.Errorf("look for version %s: %w", id, err)
	}
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, true, nil
}

// commit writes the checkpoint's blobs and then the version's row. If another
// executor was first, its version counts; a deterministic engine must then have
// made the same weights. It returns the version that stands and the manifest of
// c, which is another than the version's if they differ in anything.
func (t *Trainer) commit(ctx context.Context, run string, engine model.Engine, c model.Checkpoint, m model.Manifest) (stands model.Version, manifest string, err error) {
	id := model.VersionID{Run: run, Policy: m.Policy, Number: m.Number}
	m.Engine, m.Fingerprint = engine.Name(), engine.Fingerprint()
	manifest, weights, err := checkpoint.Save(ctx, t.Blobs, c, m)
	if err != nil {
		return stands, "", fmt.Errorf("save version %s: %w", id, err)
	}
	stands, created, err := t.Versions.PutVersion(ctx, model.Version{
		VersionID: id, Parent: m.Parent, Manifest: manifest, Weights: weights, Batch: m.Batch,
		Fingerprint: m.Fingerprint, Metrics: m.Metrics, Created: time.Now(),
	})
	if err != nil {
		return stands, "", fmt.Errorf("record version %s: %w", id, err)
	}
	if !created && stands.Weights != weights && engine.Deterministic() && stands.Fingerprint == m.Fingerprint {
		return stands, "", invalid(fmt.Errorf("version %s was made twice with different weights, %s and %s, by one deterministic engine (%s): a fault of the engine or of the machine's memory; keep both blobs and report it",
			id, stands.Weights, weights, m.Fingerprint))
	}
	return stands, manifest, nil
}

// hold takes over the trainer of the version whose manifest is given, from
// memory or from its blobs. The caller holds mu.
func (t *Trainer) hold(ctx context.Context, engine model.Engine, manifest string) (model.Trainer, error) {
	if t.resident != nil && t.manifest != "" && t.manifest == manifest {
		return t.resident, nil
	}
	t.drop()
	c, _, err := checkpoint.Load(ctx, t.Blobs, manifest)
	if err != nil {
		return nil, err
	}
	trainer, err := engine.NewTrainer(c)
	if err != nil {
		return nil, invalid(fmt.Errorf("engine %s: %w", engine.Name(), err))
	}
	t.resident, t.manifest = trainer, manifest
	return t.resident, nil
}
