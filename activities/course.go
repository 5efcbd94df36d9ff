package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
	"github.com/fulgurite/fulgurite/trace"
)

// A save on the way may take one saveShare-th of the time; more than unsaved
// updates are never done again after a crash.
const (
	saveShare = 20
	unsaved   = 100
)

// course are the updates that lead to a version. Whoever is cut off leaves the
// state that was saved last, and the next executor goes on from there with the
// same result to the bit.
type course struct {
	lineage
	engine  model.Engine
	codec   string
	basis   string // of all that decides the updates; see basis
	updates int
	// begin makes the trainer that the first update starts from the resident one.
	begin func(context.Context) (model.Trainer, error)
	// update makes update u, counted from 0, and describes it.
	update func(ctx context.Context, trainer model.Trainer, u int) (map[string]float64, error)
}

// tally are the descriptions of the updates made so far.
type tally struct {
	updates int
	sums    map[string]float64
	last    map[string]float64
}

func (t *tally) add(metrics map[string]float64) {
	t.updates++
	t.last = metrics
	if t.sums == nil {
		t.sums = map[string]float64{}
	}
	for name, v := range metrics {
		t.sums[name] += v
	}
}

func (t *tally) mean(name string) float64 { return t.sums[name] / float64(t.updates) }

// follow makes the updates that are still to make. The trainer it returns is
// resident, but not yet that of a version.
func (t *Trainer) follow(ctx context.Context, c course) (model.Trainer, tally, error) {
	trainer, done, err := t.resume(ctx, c)
	if err == nil && trainer == nil {
		trainer, err = c.begin(ctx)
	}
	if err != nil {
		return nil, done, err
	}
	t.manifest = "" // from here on, until the version stands, what is in memory is none
	pace := pace{every: t.SaveEvery, cost: t.saving, saved: time.Now()}
	for done.updates < c.updates {
		metrics, err := c.update(ctx, trainer, done.updates)
		if err != nil {
			return nil, done, fmt.Errorf("update %d of %d: %w", done.updates+1, c.updates, err)
		}
		done.add(metrics)
		t.work.Add(1)
		if done.updates < c.updates && pace.due() {
			if err := t.save(ctx, c, trainer, done); err != nil {
				return nil, done, err
			}
			pace.restart(t.saving)
		}
	}
	return trainer, done, nil
}

// resume makes the state that was saved last the resident one; nil if there is
// none to go on from.
func (t *Trainer) resume(ctx context.Context, c course) (model.Trainer, tally, error) {
	p, err := t.Versions.Progress(ctx, c.id)
	switch {
	case errors.Is(err, trace.ErrNotFound):
		return nil, tally{}, nil
	case err != nil:
		return nil, tally{}, fmt.Errorf("look for progress: %w", err)
	case p.Basis != c.basis || p.Updates < 1 || p.Updates >= c.updates:
		return nil, tally{}, nil
	}
	state, m, err := checkpoint.Load(ctx, t.blobs(), p.Manifest)
	if err != nil {
		if ctx.Err() != nil {
			return nil, tally{}, err
		}
		// The beginning leads to the same weights.
		activity.GetLogger(ctx).Warn("saved progress can't be read, so the updates begin anew",
			"version", c.id.String(), "updates", p.Updates, "error", err)
		return nil, tally{}, nil
	}
	trainer, err := t.take(c.engine, state, "")
	return trainer, tally{updates: p.Updates, sums: maps.Clone(m.Metrics)}, err
}

// save keeps the state after the updates in done. The sums of what describes them
// are its metrics.
func (t *Trainer) save(ctx context.Context, c course, trainer model.Trainer, done tally) error {
	began := time.Now()
	manifest, _, err := checkpoint.Save(ctx, t.blobs(), trainer.Checkpoint(), model.Manifest{
		Policy: c.id.Policy, Number: c.id.Number, Parent: c.parent, Batch: c.batch, Codec: c.codec,
		Engine: c.engine.Name(), Fingerprint: c.engine.Fingerprint(), Metrics: done.sums,
	})
	if err != nil {
		return fmt.Errorf("save update %d of %d: %w", done.updates, c.updates, err)
	}
	err = t.Versions.PutProgress(ctx, model.Progress{VersionID: c.id, Basis: c.basis, Updates: done.updates, Manifest: manifest})
	if err != nil {
		return fmt.Errorf("record update %d of %d: %w", done.updates, c.updates, err)
	}
	t.saving = time.Since(began)
	return nil
}

// pace decides when a state is worth saving.
type pace struct {
	every   int           // updates; 0 goes by the clock
	cost    time.Duration // of a save
	saved   time.Time
	pending int // updates since then
}

// due counts an update and reports whether to save now.
func (p *pace) due() bool {
	p.pending++
	if p.every > 0 {
		return p.pending >= p.every
	}
	return p.pending >= unsaved || time.Since(p.saved) >= saveShare*p.cost
}

func (p *pace) restart(cost time.Duration) {
	*p = pace{every: p.every, cost: cost, saved: time.Now()}
}
