package activities

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	// Constrain rebuilds what samplers could choose from under a form; without it
	// batches with forms are refused.
	Constrain model.Constrain
	// SaveEvery is after how many updates towards one version its state is saved,
	// for whoever goes on after a crash. 0 saves as often as costs little.
	SaveEvery int
	// Stall is how long no piece of the work may come to an end before the work
	// counts as hanging; 0 is the constant stall.
	Stall time.Duration

	turn     turn          // versions are made one at a time
	work     atomic.Uint64 // pieces of work done: rows, updates, blobs
	resident model.Trainer
	manifest string        // of the version that resident holds; empty when it is none
	saving   time.Duration // what it took to save a state the last time
}

// stall leaves an engine the time to compile its graphs, and a disk to read the
// largest file of a checkpoint.
const stall = 5 * time.Minute

// Close frees the policy in memory.
func (t *Trainer) Close() {
	_ = t.turn.take(context.Background()) // it has no end
	defer t.turn.give()
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

// once returns the version of l if it stands, else what produce makes; one at a
// time. Whoever waits for its turn beats with the work of the one who has it.
func (t *Trainer) once(ctx context.Context, l lineage, produce func(context.Context, training) (VersionResult, error)) (VersionResult, error) {
	if v, ok, err := t.existing(ctx, l); ok || err != nil {
		return v, err
	}
	b := beat{progress: func() any { return t.work.Load() }, stall: t.Stall}
	if b.stall == 0 {
		b.stall = stall
	}
	return beating(ctx, b, func(ctx context.Context) (VersionResult, error) {
		v, err := t.inTurn(ctx, l, produce)
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
			err = fmt.Errorf("version %s: %w: %w", l.id, cause, err)
		}
		return v, err
	})
}

func (t *Trainer) inTurn(ctx context.Context, l lineage, produce func(context.Context, training) (VersionResult, error)) (VersionResult, error) {
	if err := t.turn.take(ctx); err != nil {
		return VersionResult{}, fmt.Errorf("wait to make version %s: %w", l.id, err)
	}
	defer t.turn.give()
	if v, ok, err := t.existing(ctx, l); ok || err != nil {
		return v, err // it was made while this execution waited for its turn
	}
	run, err := t.Runs.Run(ctx, l.id.Run)
	if err != nil {
		return VersionResult{}, fmt.Errorf("read run %s: %w", l.id.Run, err)
	}
	s, err := decodeSpec(run)
	if err != nil {
		return VersionResult{}, err
	}
	engine, err := t.Engines(s.Model.Engine)
	if err != nil {
		return VersionResult{}, invalid(err)
	}
	return produce(ctx, training{run, s, engine})
}

// existing returns the version of l if it stands already.
func (t *Trainer) existing(ctx context.Context, l lineage) (VersionResult, bool, error) {
	v, err := t.Versions.Version(ctx, l.id)
	switch {
	case errors.Is(err, trace.ErrNotFound):
		return VersionResult{}, false, nil
	case err != nil:
		return VersionResult{}, false, fmt.Errorf("look for version %s: %w", l.id, err)
	}
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, true, l.check(v)
}

// commit writes the blobs of the version that trainer holds as c, with the canary
// of its weights, and then the version's row. If another executor was first, its
// version counts; a deterministic engine must then have made the same weights. It
// returns the version that stands and the manifest of c, which is another than the
// version's if they differ in anything.
func (t *Trainer) commit(ctx context.Context, l lineage, engine model.Engine, trainer model.Trainer, c model.Checkpoint, m model.Manifest) (stands model.Version, manifest string, err error) {
	m.Policy, m.Number, m.Parent, m.Batch = l.id.Policy, l.id.Number, l.parent, l.batch
	m.Engine, m.Fingerprint = engine.Name(), engine.Fingerprint()
	canary, err := model.NewCanary(ctx, engine, c.Architecture, trainer)
	if err != nil {
		return stands, "", fmt.Errorf("version %s: %w", l.id, err)
	}
	began := time.Now()
	manifest, weights, err := checkpoint.SaveVersion(ctx, t.blobs(), c, m, canary)
	if err != nil {
		return stands, "", fmt.Errorf("save version %s: %w", l.id, err)
	}
	t.saving = time.Since(began)
	stands, created, err := t.Versions.PutVersion(ctx, model.Version{
		VersionID: l.id, Parent: m.Parent, Manifest: manifest, Weights: weights, Batch: m.Batch,
		Fingerprint: m.Fingerprint, Metrics: m.Metrics, Created: time.Now(),
	})
	if err != nil {
		return stands, "", fmt.Errorf("record version %s: %w", l.id, err)
	}
	if err := l.check(stands); err != nil {
		return stands, "", err
	}
	if !created && stands.Weights != weights && engine.Deterministic() && stands.Fingerprint == m.Fingerprint {
		return stands, "", invalid(fmt.Errorf("version %s was made twice with different weights, %s and %s, by one deterministic engine (%s): a fault of the engine or of the machine's memory; keep both blobs and report it",
			l.id, stands.Weights, weights, m.Fingerprint))
	}
	return stands, manifest, nil
}

// hold takes over the trainer of version v, from memory or from its blobs. The
// caller has the turn.
func (t *Trainer) hold(ctx context.Context, engine model.Engine, v model.Version) (model.Trainer, error) {
	if t.resident != nil && t.manifest != "" && t.manifest == v.Manifest {
		return t.resident, nil
	}
	c, m, err := checkpoint.Load(ctx, t.blobs(), v.Manifest)
	if err != nil {
		return nil, err
	}
	if m.Policy != v.Policy || m.Number != v.Number || m.Parent != v.Parent || (v.Batch != "" && m.Batch != v.Batch) || m.Files[model.WeightsFile].Digest != v.Weights {
		return nil, fmt.Errorf("%w: manifest %s is that of version %d of policy %s, parent %d, batch %q, weights %s",
			checkpoint.ErrCorrupt, v.Manifest, m.Number, m.Policy, m.Parent, m.Batch, m.Files[model.WeightsFile].Digest)
	}
	return t.take(engine, c, v.Manifest)
}

// take makes a trainer of c the resident one. manifest is that of the version
// which c is, empty if it is none.
func (t *Trainer) take(engine model.Engine, c model.Checkpoint, manifest string) (model.Trainer, error) {
	t.drop() // before there is another: both may not fit
	trainer, err := engine.NewTrainer(c)
	if err != nil {
		return nil, invalid(fmt.Errorf("engine %s: %w", engine.Name(), err))
	}
	t.resident, t.manifest = trainer, manifest
	t.work.Add(1)
	return t.resident, nil
}
