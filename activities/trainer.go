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

// Trajectories reads what attempts recorded.
type Trajectories interface {
	Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error)
}

// Trainer runs the activities of the GPU queue. It keeps what it trained last, a
// policy or a critic, in memory and goes on from there when the next step asks for
// it; otherwise it loads the parent version, with the same result to the bit. A loss
// with a KL has it keep version 0 in memory besides.
type Trainer struct {
	Runs     Runs
	Versions Versions
	Blobs    Blobs
	Engines  Engines
	Codecs   Codecs
	// Attempts are what a critic's values are about.
	Attempts Trajectories
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
	resident learner
	manifest string        // of the version that resident holds; empty when it is none
	saving   time.Duration // what it took to save a state the last time
	// reference is scored by steps whose loss has a KL.
	reference reference
}

// stall leaves an engine the time to compile its graphs, and a disk to read the
// largest file of a checkpoint.
const stall = 5 * time.Minute

// Close frees what is in memory.
func (t *Trainer) Close() {
	_ = t.turn.take(context.Background()) // it has no end
	defer t.turn.give()
	t.drop()
	t.reference.drop()
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
	return inTurn(ctx, t, "version "+l.id.String(), func(ctx context.Context) (VersionResult, error) {
		if v, ok, err := t.existing(ctx, l); ok || err != nil {
			return v, err // it was made while this execution waited for its turn
		}
		run, err := t.training(ctx, l.id.Run)
		if err != nil {
			return VersionResult{}, err
		}
		return produce(ctx, run)
	})
}

// training reads what an update needs to know of a run.
func (t *Trainer) training(ctx context.Context, name string) (training, error) {
	run, err := t.Runs.Run(ctx, name)
	if err != nil {
		return training{}, fmt.Errorf("read run %s: %w", name, err)
	}
	s, err := decodeSpec(run)
	if err != nil {
		return training{}, err
	}
	engine, err := t.Engines(s.Model.Engine)
	if err != nil {
		return training{}, invalid(err)
	}
	return training{run, s, engine}, nil
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

// commit is commitAs of a policy's version, with the canary of the weights that
// trainer holds.
func (t *Trainer) commit(ctx context.Context, l lineage, engine model.Engine, trainer model.Trainer, c model.Checkpoint, m model.Manifest) (stands model.Version, manifest string, err error) {
	canary, err := model.NewCanary(ctx, engine, c.Architecture, trainer)
	if err != nil {
		return stands, "", fmt.Errorf("version %s: %w", l.id, err)
	}
	return t.commitAs(ctx, l, engine, m, func(m model.Manifest) (string, string, error) {
		return checkpoint.SaveVersion(ctx, t.blobs(), c, m, canary)
	})
}

// commitAs has save write the blobs of a version, and then writes the version's
// row. If another executor was first, its version counts; a deterministic engine
// must then have made the same weights. It returns the version that stands and the
// manifest of what was saved, which is another than the version's if they differ
// in anything.
func (t *Trainer) commitAs(ctx context.Context, l lineage, engine model.Engine, m model.Manifest, save func(model.Manifest) (manifest, weights string, err error)) (stands model.Version, manifest string, err error) {
	m.Policy, m.Number, m.Parent, m.Batch = l.id.Policy, l.id.Number, l.parent, l.batch
	m.Engine, m.Fingerprint = engine.Name(), engine.Fingerprint()
	began := time.Now()
	manifest, weights, err := save(m)
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

// hold takes over the trainer of a policy's version; see the function hold.
func (t *Trainer) hold(ctx context.Context, engine model.Engine, v model.Version) (model.Trainer, error) {
	return hold[model.Trainer](ctx, t, engine, v)
}

// take makes a policy's trainer of c the resident one; see the function take.
func (t *Trainer) take(engine model.Engine, c model.Checkpoint, manifest string) (model.Trainer, error) {
	return take[model.Trainer](t, engine, c, manifest)
}
