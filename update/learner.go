package update

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// learner is the model that updates change: a policy or a critic. The other is nil.
type learner struct {
	policy model.Trainer
	critic model.Critic
}

// checkpoint returns the current state. It has to be saved before the next update.
func (l learner) checkpoint(ctx context.Context) (model.Checkpoint, error) {
	var of interface{ Checkpoint() model.Checkpoint } = l.policy
	if l.critic != nil {
		of = l.critic
	}
	switch of := of.(type) {
	case model.Saver:
		return of.Save(ctx)
	case model.Viewer:
		return of.View(), nil
	}
	return of.Checkpoint(), nil
}

// optimizerTime returns how much of the time of all updates so far was not spent on
// gradients; 0 if the engine does not know.
func (l learner) optimizerTime() time.Duration {
	var of any = l.policy
	if l.critic != nil {
		of = l.critic
	}
	if timer, ok := of.(model.OptimizerTimer); ok {
		return timer.OptimizerTime()
	}
	return 0
}

func (l learner) close() {
	if l.critic != nil {
		l.critic.Close()
	}
	if l.policy != nil {
		l.policy.Close()
	}
}

// load makes version v the resident learner for a run, unless it is that already.
func (m *Maker) load(ctx context.Context, run Run, v model.Version) (learner, error) {
	if m.manifest != "" && m.manifest == v.Manifest && m.moments == run.moments() {
		return m.resident, nil
	}
	began := time.Now()
	defer func() { m.spent.Load += time.Since(began) }()
	m.drop() // before the next one is loaded, because both may not fit in memory
	c, err := m.loadCheckpoint(ctx, v)
	if err != nil {
		return learner{}, err
	}
	return m.use(run, v.VersionID, c, v.Manifest)
}

// size returns the size of the tensors of c in bytes.
func size(c model.Checkpoint) int64 {
	sets := 1
	if c.Updates > 0 {
		sets = 3 // weights and two moments
	}
	return int64(sets) * int64(c.Architecture.Parameters()) * 4
}

// loadCheckpoint reads a version's blobs. It returns an error if the manifest belongs to
// another version.
func (m *Maker) loadCheckpoint(ctx context.Context, v model.Version) (model.Checkpoint, error) {
	return m.loaded(ctx, v, checkpoint.Load)
}

// loadWeights works like loadCheckpoint, but without the moments.
func (m *Maker) loadWeights(ctx context.Context, v model.Version) (model.Checkpoint, error) {
	c, err := m.loaded(ctx, v, checkpoint.LoadWeights)
	c.Updates = 0
	return c, err
}

func (m *Maker) loaded(
	ctx context.Context, v model.Version, load func(context.Context, checkpoint.Blobs, string) (model.Checkpoint, model.Manifest, error),
) (model.Checkpoint, error) {
	c, mf, err := load(ctx, m.blobs(), v.Manifest)
	if err != nil {
		return c, err
	}
	if mf.Policy != v.Policy || mf.Number != v.Number || mf.Parent != v.Parent || (v.Batch != "" && mf.Batch != v.Batch) || mf.Weights() != v.Weights {
		return c, fmt.Errorf("%w: manifest %s is that of version %d of policy %s, parent %d, batch %q, weights %s",
			checkpoint.ErrCorrupt, v.Manifest, mf.Number, mf.Policy, mf.Parent, mf.Batch, mf.Weights())
	}
	return c, nil
}

// moments returns the format in which the run's engine holds moments.
func (r Run) moments() string {
	if r.Spec.Training.Optimizer.Moments == model.MomentsInt8 {
		return model.MomentsInt8
	}
	return model.MomentsF32
}

// use makes a learner of c the resident one, for the policy or critic of id. manifest is
// the manifest of c's version. It is empty if c is not a version.
func (m *Maker) use(run Run, id model.VersionID, c model.Checkpoint, manifest string) (l learner, err error) {
	m.drop()
	engine := run.Engine
	c.Moments = run.moments()
	critic := model.IsCritic(id.Policy)
	switch {
	case c.Architecture.ValueHead != critic:
		err = fmt.Errorf("%w: value_head is %t, which is another kind of model", model.ErrArchitecture, c.Architecture.ValueHead)
		return learner{}, Invalid(err)
	case critic:
		l.critic, err = engine.NewCritic(c)
	default:
		l.policy, err = engine.NewTrainer(c)
	}
	if err != nil {
		return learner{}, engineError(fmt.Errorf("engine %s: %w", engine.Name(), err))
	}
	m.resident, m.manifest, m.held, m.moments = l, manifest, size(c), c.Moments
	m.work.Add(1)
	memory.Dropped(size(c)) // the engine has copied it
	return l, nil
}

// Versions keeps versions. PutVersion returns the version on record under its
// id, and whether this call made it.
type Versions interface {
	PutVersion(ctx context.Context, v model.Version) (model.Version, bool, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
	// PutProgress and Progress store how many of the updates towards a version are done.
	// Progress returns nothing once the version is recorded.
	PutProgress(ctx context.Context, p model.Progress) error
	Progress(ctx context.Context, id model.VersionID) (model.Progress, error)
	// NoteFile is called before a file is stored for a version that is not recorded yet.
	// If the maker dies before it records the version, the file can be collected.
	NoteFile(ctx context.Context, id model.VersionID, digest string) error
}

// Config is the configuration of a Maker.
type Config struct {
	Versions Versions
	Blobs    checkpoint.Blobs
	// Attempts tell which of several servers sampled a call. nil means that this is not
	// known.
	Attempts Attempts
	// Constrain rebuilds the constraint of a form, that is, the tokens that samplers
	// could choose from. Without it, batches with forms are refused.
	Constrain model.Constrain
	// SaveEvery is the number of updates towards a version after which its state is
	// saved. 0 saves as often as costs little.
	SaveEvery int
	// Warn gets a message and pairs of keys and values: when saved progress can't be
	// read, and when the sampler's log-probabilities differ unusually from the trainer's.
	Warn func(ctx context.Context, message string, pairs ...any)
	// Trained, unless it is nil, gets the number of tokens in the loss of each step of a
	// policy, when its version is made.
	Trained func(tokens int)
}

// Run has the parts of a run that an update needs.
type Run struct {
	Name, SpecDigest string
	Tasks            int // in the train split
	Spec             spec.Spec
	Engine           model.Engine
}

// Maker makes versions. It keeps the policy or critic that it trained last in memory and
// continues from there if the next version is made from it; otherwise it loads the
// parent, with the same result to the bit. For a loss with a KL term, or rewards with
// one, it keeps version 0 in memory as well. All methods but Work and Updates need
// exclusive use.
type Maker struct {
	Config

	work     atomic.Uint64
	updates  atomic.Int64
	resident learner
	manifest string        // manifest of the version that resident holds; empty if it holds none
	moments  string        // the format of the moments in resident
	held     int64         // bytes of the weights and moments of resident
	saving   time.Duration // how long the last save took
	// begun is when the work for the version began that is being made, or was made last, and
	// spent how long its parts took so far.
	begun time.Time
	spent model.Work
	// reference scores rows for steps whose loss or rewards have a KL term.
	reference reference
}

// Work counts the pieces of work that are done: rows, updates and blobs. Call it at
// any time.
func (m *Maker) Work() uint64 { return m.work.Load() }

// Updates counts the updates of the version that is being made, or was made last. Call it
// at any time.
func (m *Maker) Updates() int { return int(m.updates.Load()) }

// Close frees the memory of the resident learner and of the reference.
func (m *Maker) Close() {
	m.drop()
	m.reference.drop()
}

func (m *Maker) drop() {
	m.resident.close()
	m.resident, m.manifest = learner{}, ""
	memory.Dropped(m.held)
	m.held = 0
}

// begin begins to measure the work for a version.
func (m *Maker) begin() { m.begun, m.spent = time.Now(), model.Work{} }

// ForgetLost frees memory if err says that the engine was lost: the engine's state is
// gone, and the next attempt loads it again. Call it after each method that returns an
// error.
func (m *Maker) ForgetLost(err error) {
	if errors.Is(err, model.ErrEngineLost) {
		m.Close()
	}
}

// Existing returns the version of t, and whether it is on record.
func Existing(ctx context.Context, versions Versions, t Target) (model.Version, bool, error) {
	v, err := versions.Version(ctx, t.ID)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return model.Version{}, false, nil
	case err != nil:
		return model.Version{}, false, fmt.Errorf("look for version %s: %w", t.ID, err)
	}
	return v, true, t.check(v)
}

// outcome is a version that is not yet recorded.
type outcome struct {
	state    model.Checkpoint
	manifest model.Manifest
	// canary is nil for a critic, because samplers never load its versions.
	canary *model.Canary
	scores string // as in model.Version
}

// commit writes the blobs of a version and then its row. If another executor was first,
// its version counts; a deterministic engine must then have made the same weights. commit
// returns the recorded version and the manifest of the saved files, which differs from
// the version's if any of the files differs.
func (m *Maker) commit(ctx context.Context, t Target, engine model.Engine, o outcome) (recorded model.Version, manifest string, err error) {
	mf := o.manifest
	mf.Policy, mf.Number, mf.Parent, mf.Batch = t.ID.Policy, t.ID.Number, t.Parent, t.Batch
	mf.Engine, mf.Fingerprint = engine.Name(), engine.Fingerprint()
	began := time.Now()
	var weights string
	if o.canary != nil {
		manifest, weights, err = checkpoint.SaveVersion(ctx, m.noted(t.ID), o.state, mf, *o.canary)
	} else {
		manifest, weights, err = checkpoint.Save(ctx, m.noted(t.ID), o.state, mf)
	}
	if err != nil {
		return recorded, "", fmt.Errorf("save version %s: %w", t.ID, err)
	}
	m.saving = time.Since(began)
	m.spent.Save += m.saving
	recorded, created, err := m.Versions.PutVersion(ctx, model.Version{
		VersionID: t.ID, Parent: mf.Parent, Manifest: manifest, Weights: weights, Batch: mf.Batch, Scores: o.scores,
		Fingerprint: mf.Fingerprint, Metrics: mf.Metrics, Created: time.Now(), Begun: m.begun, Work: m.spent,
	})
	if err != nil {
		return recorded, "", fmt.Errorf("record version %s: %w", t.ID, err)
	}
	if err := t.check(recorded); err != nil {
		return recorded, "", err
	}
	if !created && recorded.Weights != weights && engine.Deterministic() && recorded.Fingerprint == mf.Fingerprint {
		return recorded, "", Invalid(fmt.Errorf("version %s was made twice with different weights, %s and %s, by one deterministic engine (%s): a fault of the engine or of the machine's memory; keep both blobs and report it",
			t.ID, recorded.Weights, weights, mf.Fingerprint))
	}
	return recorded, manifest, nil
}

// CodecChoices returns what a spec says about the codec of its base model.
func CodecChoices(s spec.Spec) dialog.Choices {
	return dialog.Choices{Template: s.Model.Template, ToolParser: s.Model.ToolParser, StopTokens: s.Sampling.StopTokens, Variables: s.Model.TemplateVariables}
}

// WithCodec returns the architecture with the rows that have no token in the codec. A
// built-in codec has none: its vocabulary is padded, but its models are trained with the
// padding.
func WithCodec(a model.Architecture, codec dialog.Codec) model.Architecture {
	if sparse, ok := codec.(dialog.Sparse); ok && !a.ValueHead {
		a.Unused = sparse.Unused(a.VocabSize)
	}
	return a
}
