package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/update"
)

// Engines finds an engine by its name in a spec.
type Engines func(name string) (model.Engine, error)

// Trajectories reads what attempts recorded.
type Trajectories interface {
	Trajectories(ctx context.Context, addresses []trace.Address) ([]trace.Trajectory, error)
}

// Trainer runs the activities of the GPU queue: those that need an engine. An
// update.Maker does the work, one activity at a time.
type Trainer struct {
	Runs     Runs
	Versions update.Versions
	Blobs    checkpoint.Blobs
	Engines  Engines
	Codecs   Codecs
	// Attempts reads the attempts that a critic scores, and which servers sampled them.
	Attempts Trajectories
	// Constrain rebuilds the constraint of a form, that is, the tokens that samplers
	// could choose from. Without it, the Trainer refuses batches with forms.
	Constrain model.Constrain
	// Sleeper frees the GPU during an update if a server shares it. It is nil if no
	// server does. If a server could not be woken, the publication of the next version
	// wakes it.
	Sleeper Sleeper
	// SaveEvery is the number of updates between two saves of the state. After a crash,
	// another executor continues from the last save. 0 saves as often as costs little.
	SaveEvery int
	// Stall is how long the work may take to finish one piece before it counts as
	// hanging. 0 means the constant stall.
	Stall time.Duration

	lock  lock // guards maker, except for its Work
	maker update.Maker
}

// wakeLimit is how long waking a server may take.
const wakeLimit = 2 * time.Minute

// stall is enough time for an engine to compile its graphs, and for a disk to read the
// largest file of a checkpoint.
const stall = 5 * time.Minute

// Close frees the memory of the models.
func (t *Trainer) Close() {
	_ = t.lock.acquire(context.Background()) // the context never ends, so there is no error
	defer t.lock.release()
	t.maker.Close()
}

// TrainerProgress has the details of the heartbeats of a trainer's activities.
type TrainerProgress struct {
	Work    uint64 `json:"work"`    // pieces of work that were done, of any kind
	Updates int    `json:"updates"` // of the version that is being made
}

func (t *Trainer) progress() TrainerProgress {
	return TrainerProgress{Work: t.maker.Work(), Updates: t.maker.Updates()}
}

// exclusively runs f, which makes subject. Only one f runs at a time. While an execution
// waits for the lock, it sends heartbeats with the progress of the one that holds it.
func exclusively[Result any](ctx context.Context, t *Trainer, subject string, f func(context.Context, *update.Maker) (Result, error)) (Result, error) {
	b := beat{progress: func() any { return t.progress() }, stall: cmp.Or(t.Stall, stall)}
	return beating(ctx, b, func(ctx context.Context) (made Result, err error) {
		if err = t.lock.acquire(ctx); err != nil {
			err = fmt.Errorf("wait to make %s: %w", subject, err)
		} else {
			defer t.lock.release()
			t.maker.Config = update.Config{
				Versions: t.Versions, Blobs: t.Blobs, Attempts: t.Attempts, Constrain: t.Constrain, SaveEvery: t.SaveEvery,
				Warn: func(ctx context.Context, message string, pairs ...any) {
					activity.GetLogger(ctx).Warn(message, pairs...)
				},
			}
			made, err = f(ctx, &t.maker)
			t.maker.ForgetLost(err)
		}
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
			err = fmt.Errorf("%s: %w: %w", subject, cause, err)
		}
		return made, err
	})
}

// once returns the target if it exists, else the version that produce makes.
func (t *Trainer) once(ctx context.Context, target update.Target, produce func(context.Context, *update.Maker, update.Run) (model.Version, error)) (VersionResult, error) {
	v, ok, err := update.Existing(ctx, t.Versions, target)
	if !ok && err == nil {
		v, err = exclusively(ctx, t, "version "+target.ID.String(), func(ctx context.Context, m *update.Maker) (model.Version, error) {
			if v, ok, err := update.Existing(ctx, t.Versions, target); ok || err != nil {
				return v, err // it was made while this execution waited for the lock
			}
			run, err := t.run(ctx, target.ID.Run)
			if err != nil {
				return model.Version{}, err
			}
			wake, err := t.sleep(ctx, m, target.ID.Run)
			if err != nil {
				return model.Version{}, err
			}
			defer wake()
			return produce(ctx, m, run)
		})
	}
	if err != nil {
		return VersionResult{}, err
	}
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, nil
}

// sleep makes the servers on this GPU free its memory until wake is called. It also frees
// what m holds, so the next update loads it again.
func (t *Trainer) sleep(ctx context.Context, m *update.Maker, run string) (wake func(), err error) {
	if t.Sleeper == nil {
		return func() {}, nil
	}
	up, err := t.Sleeper.Sleep(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("free the GPU: %w", err)
	}
	if up == nil {
		return func() {}, nil
	}
	return func() {
		m.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wakeLimit)
		defer cancel()
		if err := up(ctx); err != nil { // publishing the version wakes them, and fails if that is not possible
			activity.GetLogger(ctx).Warn("a server on this GPU was not woken", "run", run, "error", err)
		}
	}, nil
}

// run reads the parts of a run that an update needs.
func (t *Trainer) run(ctx context.Context, name string) (update.Run, error) {
	run, s, err := readSpec(ctx, t.Runs, name)
	if err != nil {
		return update.Run{}, err
	}
	engine, err := t.Engines(s.Model.Engine)
	if errors.Is(err, model.ErrEngineLost) {
		return update.Run{}, fmt.Errorf("run %s: %w", name, err)
	}
	if err != nil {
		return update.Run{}, invalid(err)
	}
	return update.Run{Name: run.Name, SpecDigest: run.SpecDigest, Tasks: run.Splits[trace.Train].Count, Spec: s, Engine: engine}, nil
}
