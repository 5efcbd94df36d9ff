package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
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

// course are the updates that lead to a version of a policy.
type course = courseOf[model.Trainer]

// courseOf are the updates that lead to a version. Whoever is cut off leaves the
// state that was saved last, and the next executor goes on from there with the
// same result to the bit.
type courseOf[L learner] struct {
	lineage
	engine  model.Engine
	codec   string
	basis   string // of all that decides the updates; see basis
	updates int
	// begin makes the learner that the first update starts from the resident one.
	begin func(context.Context) (L, error)
	// update makes update u, counted from 0, and describes it.
	update func(ctx context.Context, learner L, u int) (map[string]float64, error)
}

// tally are the descriptions of the updates made so far.
type tally struct {
	updates int
	sums    map[string]float64 // or the greatest; see greatest
	last    map[string]float64
}

func (t *tally) add(metrics map[string]float64) {
	t.updates++
	t.last = metrics
	if t.sums == nil {
		t.sums = map[string]float64{}
	}
	for name, v := range metrics {
		if greatest(name) {
			t.sums[name] = math.Max(t.sums[name], v)
			continue
		}
		t.sums[name] += v
	}
}

// value is what name came to: the mean over the updates, or the greatest.
func (t *tally) value(name string) float64 {
	if greatest(name) {
		return t.sums[name]
	}
	return t.sums[name] / float64(t.updates)
}

// greatest reports whether a number is the greatest of what it describes, of which
// a mean would say little. None of them is negative.
func greatest(name string) bool { return strings.HasSuffix(name, "_max") }

// follow makes the updates towards a policy's version; see the function follow.
func (t *Trainer) follow(ctx context.Context, c course) (model.Trainer, tally, error) {
	return follow(ctx, t, c)
}

// follow makes the updates that are still to make. The learner it returns is
// resident, but not yet that of a version.
func follow[L learner](ctx context.Context, t *Trainer, c courseOf[L]) (L, tally, error) {
	var none L
	learner, done, err := resume(ctx, t, c)
	if err == nil && done.updates == 0 {
		learner, err = c.begin(ctx)
	}
	if err != nil {
		return none, done, err
	}
	t.manifest = "" // from here on, until the version stands, what is in memory is none
	pace := pace{every: t.SaveEvery, cost: t.saving, saved: time.Now()}
	for done.updates < c.updates {
		metrics, err := c.update(ctx, learner, done.updates)
		if err != nil {
			return none, done, fmt.Errorf("update %d of %d: %w", done.updates+1, c.updates, err)
		}
		done.add(metrics)
		t.work.Add(1)
		if done.updates < c.updates && pace.due() {
			if err := save(ctx, t, c, learner, done); err != nil {
				return none, done, err
			}
			pace.restart(t.saving)
		}
	}
	return learner, done, nil
}

// resume makes the state that was saved last the resident one. No update is done
// if there is none to go on from.
func resume[L learner](ctx context.Context, t *Trainer, c courseOf[L]) (learner L, done tally, err error) {
	p, err := t.Versions.Progress(ctx, c.id)
	switch {
	case errors.Is(err, trace.ErrNotFound):
		return learner, tally{}, nil
	case err != nil:
		return learner, tally{}, fmt.Errorf("look for progress: %w", err)
	case p.Basis != c.basis || p.Updates < 1 || p.Updates >= c.updates:
		return learner, tally{}, nil
	}
	state, m, err := checkpoint.Load(ctx, t.blobs(), p.Manifest)
	if err != nil {
		if ctx.Err() != nil {
			return learner, tally{}, err
		}
		// The beginning leads to the same weights.
		activity.GetLogger(ctx).Warn("saved progress can't be read, so the updates begin anew",
			"version", c.id.String(), "updates", p.Updates, "error", err)
		return learner, tally{}, nil
	}
	learner, err = take[L](t, c.engine, state, "")
	return learner, tally{updates: p.Updates, sums: maps.Clone(m.Metrics)}, err
}

// save keeps the state after the updates in done. The sums of what describes them
// are its metrics.
func save[L learner](ctx context.Context, t *Trainer, c courseOf[L], learner L, done tally) error {
	began := time.Now()
	manifest, _, err := checkpoint.Save(ctx, t.blobs(), learner.Checkpoint(), model.Manifest{
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
