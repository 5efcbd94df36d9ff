package update

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Saving may take one saveShare-th of the time. After unsavedUpdates updates the state
// is saved in any case, so that a crash costs no more than those.
const (
	saveShare      = 20
	unsavedUpdates = 100
)

// updatePlan describes the updates that lead to a version. If an executor is cut off, the
// state that was saved last remains, and the next executor continues from it with the
// same result to the bit.
type updatePlan struct {
	Target
	run     Run
	codec   string
	basis   string // digest of everything that decides the updates; see the function basis
	updates int
	canary  canaryText // the version's canary rows in addition to random tokens
	// scores collects the updates' scores of tokens. It is nil if they are not needed.
	scores *tokenScores
	// begin loads the learner that the first update starts from.
	begin func(context.Context) (learner, error)
	// update makes update u, counted from 0, and returns its metrics.
	update func(ctx context.Context, l learner, u int) (map[string]float64, error)
}

// execute makes the updates of p and then the version. rate is the spec's key that a
// person has to lower if the updates diverge.
func (m *Maker) execute(ctx context.Context, p updatePlan, rate string, metrics func(tally) map[string]float64) (model.Version, error) {
	l, done, err := m.resumeUpdates(ctx, p)
	if errors.Is(err, model.ErrDiverged) {
		return model.Version{}, Invalid(fmt.Errorf("version %s: %w: %s", p.ID, err, p.lower(rate)))
	}
	if errors.Is(err, model.ErrRow) { // no engine will ever take it
		return model.Version{}, Invalid(fmt.Errorf("version %s: %w", p.ID, err))
	}
	if err != nil {
		return model.Version{}, fmt.Errorf("version %s: %w", p.ID, err)
	}
	state, err := l.checkpoint(ctx)
	if err != nil {
		return model.Version{}, fmt.Errorf("version %s: %w", p.ID, err)
	}
	defer state.Release()
	o := outcome{state: state, manifest: model.Manifest{Codec: p.codec, Metrics: metrics(done)}}
	if l.policy != nil {
		if o.canary, err = m.canary(ctx, p.Target, p.run.Engine, l.policy, state, p.canary); err != nil {
			if errors.Is(err, model.ErrCanary) { // the update was finite, but what the weights compute is not
				err = Invalid(fmt.Errorf("%w: %s", err, p.lower(rate)))
			}
			return model.Version{}, err
		}
	}
	if p.scores != nil {
		if o.scores, err = p.scores.save(ctx, m); err != nil {
			return model.Version{}, fmt.Errorf("version %s: %w", p.ID, err)
		}
	}
	v, made, err := m.commit(ctx, p.Target, p.run.Engine, o)
	if err != nil {
		return model.Version{}, err
	}
	m.manifest = made // if another executor's version counts, no later step asks for this one
	return v, nil
}

// lower says how to go on with a lower learning rate: a tenth of it. One of several policies may
// have a rate of its own.
func (p updatePlan) lower(rate string) string {
	const tenth = 10
	if own := fmt.Sprintf("policies.%s.%s", p.ID.Policy, strings.TrimPrefix(rate, "training.")); slices.Contains(p.run.Spec.SettableKeys(), own) {
		rate = own
	}
	set := fmt.Sprintf("%s=%g", rate, p.run.Spec.SettableValues()[rate]/tenth)
	return fmt.Sprintf("lower %s: `%s`", rate, shell.Command("retry", p.run.Name, "--set", set))
}

// resumeUpdates makes the updates of p that are not saved yet. It returns a resident
// learner that does not hold a version yet.
func (m *Maker) resumeUpdates(ctx context.Context, p updatePlan) (learner, tally, error) {
	l, done, err := m.loadProgress(ctx, p)
	if err == nil && done.updates == 0 {
		l, err = p.begin(ctx)
	}
	if err != nil {
		return learner{}, done, err
	}
	m.updates.Store(int64(done.updates))
	m.manifest = "" // until the commit, the learner in memory is not a version
	pace := pace{every: m.SaveEvery, cost: m.saving, saved: time.Now()}
	for done.updates < p.updates {
		before, began := l.optimizerTime(), time.Now()
		metrics, err := p.update(ctx, l, done.updates)
		optimizer := l.optimizerTime() - before
		m.spent.Optimizer += optimizer
		m.spent.Gradient += time.Since(began) - optimizer
		if err != nil {
			return learner{}, done, fmt.Errorf("update %d of %d: %w", done.updates+1, p.updates, err)
		}
		done.add(metrics)
		m.updates.Store(int64(done.updates))
		m.work.Add(1)
		if done.updates < p.updates && pace.due() {
			if err := m.saveProgress(ctx, p, l, done); err != nil {
				return learner{}, done, err
			}
			pace.restart(m.saving)
		}
	}
	return l, done, nil
}

// loadProgress makes the state that was saved last the resident learner. Without such
// a state the tally has no updates.
func (m *Maker) loadProgress(ctx context.Context, p updatePlan) (l learner, done tally, err error) {
	saved, err := m.Versions.Progress(ctx, p.ID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return l, tally{}, nil
	case err != nil:
		return l, tally{}, fmt.Errorf("look for progress: %w", err)
	case saved.Basis != p.basis || saved.Updates < 1 || saved.Updates >= p.updates:
		return l, tally{}, nil
	}
	began := time.Now()
	defer func() { m.spent.Load += time.Since(began) }()
	state, mf, err := checkpoint.Load(ctx, m.blobs(), saved.Manifest)
	if err != nil {
		if ctx.Err() != nil {
			return l, tally{}, err
		}
		// Starting from the first update leads to the same weights.
		m.Warn(ctx, "saved progress can't be read, so the updates start again",
			"version", p.ID.String(), "updates", saved.Updates, "error", err)
		return l, tally{}, nil
	}
	l, err = m.use(p.run, p.ID, state, "")
	return l, tally{updates: saved.Updates, sums: maps.Clone(mf.Metrics)}, err
}

// saveProgress saves the state after the updates in done. The manifest's metrics are
// the sums of the tally.
func (m *Maker) saveProgress(ctx context.Context, p updatePlan, l learner, done tally) error {
	began := time.Now()
	c, err := l.checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("save update %d of %d: %w", done.updates, p.updates, err)
	}
	defer c.Release()
	manifest, _, err := checkpoint.Save(ctx, m.noted(p.ID), c, model.Manifest{
		Policy: p.ID.Policy, Number: p.ID.Number, Parent: p.Parent, Batch: p.Batch, Codec: p.codec,
		Engine: p.run.Engine.Name(), Fingerprint: p.run.Engine.Fingerprint(), Metrics: done.sums,
	})
	if err != nil {
		return fmt.Errorf("save update %d of %d: %w", done.updates, p.updates, err)
	}
	err = m.Versions.PutProgress(ctx, model.Progress{VersionID: p.ID, Basis: p.basis, Updates: done.updates, Manifest: manifest})
	if err != nil {
		return fmt.Errorf("record update %d of %d: %w", done.updates, p.updates, err)
	}
	m.saving = time.Since(began)
	m.spent.Save += m.saving
	return nil
}

// pace decides when the state is saved.
type pace struct {
	every   int           // number of updates between saves; 0 decides by the clock
	cost    time.Duration // duration of a save
	saved   time.Time
	pending int // updates since then
}

// due counts an update and reports whether to save now.
func (p *pace) due() bool {
	p.pending++
	if p.every > 0 {
		return p.pending >= p.every
	}
	return p.pending >= unsavedUpdates || time.Since(p.saved) >= saveShare*p.cost
}

func (p *pace) restart(cost time.Duration) {
	*p = pace{every: p.every, cost: cost, saved: time.Now()}
}

// adamW returns the optimizer of one step. Under a linear or cosine schedule, the
// learning rate falls from its full value at step 1 to FinalFraction of it at the last
// step.
func adamW(o spec.Optimizer, step, steps int) model.AdamW {
	progress := 0.0
	if steps > 1 {
		progress = float64(step-1) / float64(steps-1)
	}
	scale := 1.0
	switch o.Schedule {
	case spec.ScheduleLinear:
		scale = 1 - progress*(1-o.FinalFraction)
	case spec.ScheduleCosine:
		scale = o.FinalFraction + (1-o.FinalFraction)*0.5*(1+math.Cos(math.Pi*progress))
	}
	return model.AdamW{
		LearningRate: o.LearningRate * scale, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
		WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
	}
}

// The schedule of a warm start: linear warm-up, then cosine decay to a twentieth.
const (
	warmUpUpdates   = 20
	warmStartFinish = 0.05
)

// warmAdamW returns the optimizer of warm-start update u of n, counted from 0.
func warmAdamW(w spec.WarmStart, o spec.Optimizer, u, n int) model.AdamW {
	rise := math.Min(1, float64(u+1)/warmUpUpdates)
	fall := warmStartFinish + (1-warmStartFinish)*0.5*(1+math.Cos(math.Pi*float64(u)/float64(n)))
	return model.AdamW{
		LearningRate: w.LearningRate * rise * fall, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon,
		WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
	}
}

// Target is a version to make, and its inputs.
type Target struct {
	ID     model.VersionID
	Parent int    // -1 for version 0
	Batch  string // empty for version 0
}

// check returns an error if the version on record under the id was made from other
// inputs. There is only one batch for each step, so no retry could fix this.
func (t Target) check(v model.Version) error {
	if v.Parent == t.Parent && (v.Batch == t.Batch || v.Batch == "") { // external trainers may leave out the batch
		return nil
	}
	return Final(fmt.Errorf("version %s exists and was made from version %d with batch %q, not from version %d with batch %q: two runs write under one name, or the store was put back to an earlier state; start a run with another name",
		t.ID, v.Parent, v.Batch, t.Parent, t.Batch))
}

// basis returns the digest of everything that decides a number of updates. Saved progress
// with another basis is not continued.
func basis(parts any) (string, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("encode what decides the updates: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// InvalidError is an error that another try cannot fix: a person has to change something.
type InvalidError struct{ error }

// Unwrap returns the error without the mark.
func (e InvalidError) Unwrap() error { return e.error }

// Invalid marks err as an error that another try cannot fix. The mark stays, however err
// is wrapped afterwards.
func Invalid(err error) error { return InvalidError{err} }

// FinalError is an InvalidError that a retry of the run would meet again: the retry has the
// same spec and the same record, which are what is wrong.
type FinalError struct{ error }

// Unwrap returns the InvalidError.
func (e FinalError) Unwrap() error { return e.error }

// Final marks err as an error that neither another try nor a retry of the run can fix. Its
// text has to say what a person can do instead.
func Final(err error) error { return FinalError{Invalid(err)} }

// unreadable adds to err what a person can do. err came from reading an input of version
// id. The result is no InvalidError: restoring the blob fixes it, and until then the step
// waits visibly.
func unreadable(err error, id model.VersionID) error {
	remedy := "start the run again under another name"
	if id.Number > 0 {
		id.Number--
		remedy = fmt.Sprintf("start another run from the newest version that is whole, from %s on down (`%s`, then model.base: DIRECTORY)", id, shell.Command("export", id.String(), "DIRECTORY"))
	}
	return fmt.Errorf("%w; put a copy of the file back, and the run continues by itself; without one, %s", err, remedy)
}

// engineError marks err as an error that another try can't fix, unless the engine was
// lost: it then starts again. err came from an engine that got a model.
func engineError(err error) error {
	if errors.Is(err, model.ErrEngineLost) {
		return err
	}
	return Invalid(err)
}
