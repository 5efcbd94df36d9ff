package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/fulgurite/fulgurite/internal/metrics"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/update"
)

// Engines finds an engine by its name in a spec.
type Engines func(name string) (model.Engine, error)

// Trajectories reads what attempts recorded.
type Trajectories interface {
	Trajectories(ctx context.Context, addresses []record.Address) ([]record.Trajectory, error)
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

	// Metrics counts and times the steps; nil counts none.
	Metrics *metrics.Metrics

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
				Trained: t.Metrics.TrainedTokens,
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
	return update.Run{Name: run.Name, SpecDigest: run.SpecDigest, Tasks: run.Splits[record.Train].Count, Spec: s, Engine: engine}, nil
}

// InitPolicy makes version 0: the base model, with a warm start on demonstrations if the
// spec has one, or the version of another run that the spec names. A warm start that was
// interrupted continues from its last saved update, with the same result to the bit. If
// the spec has a critic, InitPolicy makes the critic's version 0, too; with several
// policies, that of each policy that has one.
func (t *Trainer) InitPolicy(ctx context.Context, in InitPolicyInput) (_ InitPolicyResult, err error) {
	defer temporalError(&err)
	target := update.Target{ID: model.VersionID{Run: in.Run, Policy: in.Policy}, Parent: -1}
	_, s, err := readSpec(ctx, t.Runs, in.Run)
	if err != nil {
		return InitPolicyResult{}, err
	}
	v, err := t.ofEach(ctx, target, s, t.first)
	if err != nil {
		return v, err
	}
	for _, policy := range s.CriticPolicies(in.Policy) {
		if err := t.initCritic(ctx, in.Run, policy); err != nil {
			return v, err
		}
	}
	return v, nil
}

// first makes version 0 of one policy, whose spec is s.
func (t *Trainer) first(ctx context.Context, target update.Target, s spec.Spec) (VersionResult, error) {
	if s.Model.Version != "" {
		return t.copyVersion(ctx, target, s.Model.Version)
	}
	return t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		codec, err := t.Codecs.named(run.Spec.Model.Codec)
		if err != nil {
			return model.Version{}, err
		}
		run.Spec = run.Spec.ForPolicy(target.ID.Policy)
		return m.FirstPolicy(ctx, target, run, codec)
	})
}

// ofEach makes the version of a target with one. If the spec has several policies, it makes
// that of each of them, in the order of their names, and then the joint version. What exists
// already is not made again.
func (t *Trainer) ofEach(ctx context.Context, target update.Target, s spec.Spec, one func(context.Context, update.Target, spec.Spec) (VersionResult, error)) (VersionResult, error) {
	names := s.PolicyNames()
	if names == nil {
		return one(ctx, target, s)
	}
	v, ok, err := update.Existing(ctx, t.Versions, target)
	if ok || err != nil {
		return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, err
	}
	for _, name := range names {
		of := target
		of.ID.Policy = name
		if _, err := one(ctx, of, s.ForPolicy(name)); err != nil {
			return VersionResult{}, err
		}
	}
	return t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		return m.Joint(ctx, target, run)
	})
}

// initCritic makes version 0 of the critic of a policy.
func (t *Trainer) initCritic(ctx context.Context, run, policy string) error {
	target := update.Target{ID: model.VersionID{Run: run, Policy: model.CriticName(policy)}, Parent: -1}
	_, err := t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		return m.FirstCritic(ctx, target, policy, run)
	})
	return err
}

// TrainStep makes version Step from its parent and the step's batch. If the version
// exists already, TrainStep returns it. A step that was interrupted continues from its
// last saved update, with the same result to the bit.
//
// With several policies in the spec, each is trained on its own rows of the batch.
func (t *Trainer) TrainStep(ctx context.Context, in TrainStepInput) (_ TrainStepResult, err error) {
	defer temporalError(&err)
	target := update.Target{ID: model.VersionID{Run: in.Run, Policy: in.Policy, Number: in.Step}, Parent: in.Step - 1, Batch: in.Batch}
	if in.Parent != nil {
		target.Parent = *in.Parent
	}
	_, s, err := readSpec(ctx, t.Runs, in.Run)
	if err != nil {
		return TrainStepResult{}, err
	}
	return t.ofEach(ctx, target, s, func(ctx context.Context, target update.Target, s spec.Spec) (VersionResult, error) {
		return t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
			if s.Policies[target.ID.Policy].Frozen {
				return m.Unchanged(ctx, target)
			}
			run, err := set(run, in.Set)
			if err != nil {
				return model.Version{}, err
			}
			run.Spec = run.Spec.ForPolicy(target.ID.Policy)
			return t.step(target, func() (model.Version, error) { return m.Policy(ctx, target, run) })
		})
	})
}

// TrainCritic makes version Step of the critic from its version Step−1 and the returns in
// the step's batch. Like TrainStep it is idempotent.
//
// With several policies in the spec, it makes the version of the critic of each that has
// one, on the rows of that policy, in the order of their names. There is no joint version of
// critics: the result has the metrics of all of them, and no weights.
func (t *Trainer) TrainCritic(ctx context.Context, in TrainCriticInput) (_ TrainCriticResult, err error) {
	defer temporalError(&err)
	_, s, err := readSpec(ctx, t.Runs, in.Run)
	if err != nil {
		return TrainCriticResult{}, err
	}
	policies := s.CriticPolicies(in.Policy)
	if len(policies) == 0 {
		return TrainCriticResult{}, invalid(fmt.Errorf("spec of run %s: it has no critic", in.Run))
	}
	if len(s.Policies) == 0 {
		return t.trainCritic(ctx, in, in.Policy)
	}
	all := TrainCriticResult{Number: in.Step, Metrics: map[string]float64{}}
	for _, policy := range policies {
		v, err := t.trainCritic(ctx, in, policy)
		if err != nil {
			return TrainCriticResult{}, err
		}
		for name, value := range v.Metrics {
			all.Metrics[update.PolicyMetric(policy, name)] = value
		}
	}
	return all, nil
}

// trainCritic makes version Step of the critic of one policy.
func (t *Trainer) trainCritic(ctx context.Context, in TrainCriticInput, policy string) (VersionResult, error) {
	target := update.Target{ID: model.VersionID{Run: in.Run, Policy: model.CriticName(policy), Number: in.Step}, Parent: in.Step - 1, Batch: in.Batch}
	return t.once(ctx, target, func(ctx context.Context, m *update.Maker, run update.Run) (model.Version, error) {
		run, err := set(run, in.Set)
		if err != nil {
			return model.Version{}, err
		}
		run.Spec = run.Spec.ForPolicy(policy)
		return t.step(target, func() (model.Version, error) { return m.Critic(ctx, target, policy, run) })
	})
}

// step counts and times a step.
func (t *Trainer) step(target update.Target, produce func() (model.Version, error)) (model.Version, error) {
	began := time.Now()
	v, err := produce()
	if err != nil {
		return v, err
	}
	t.Metrics.Step(target.ID.Policy, time.Since(began))
	if mismatch, ok := v.Metrics["train/mismatch"]; ok {
		t.Metrics.Mismatch(target.ID.Policy, mismatch)
	}
	return v, nil
}

// set applies the changes of the run's spec that were made during the run.
func set(run update.Run, numbers map[string]float64) (_ update.Run, err error) {
	if len(numbers) == 0 {
		return run, nil
	}
	if run.Spec, err = run.Spec.Set(numbers); err != nil {
		err = invalid(fmt.Errorf("spec of run %s: %w", run.Name, err))
	}
	return run, err
}

// readSpec reads a run and its resolved spec from the store.
func readSpec(ctx context.Context, runs Runs, name string) (record.Run, spec.Spec, error) {
	run, err := runs.Run(ctx, name)
	if err != nil {
		return run, spec.Spec{}, fmt.Errorf("read run %s: %w", name, err)
	}
	s, err := decodeSpec(run)
	return run, s, err
}

// decodeSpec reads the resolved spec out of a run's row.
func decodeSpec(run record.Run) (spec.Spec, error) {
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return s, invalid(fmt.Errorf("decode the spec of run %s: %w", run.Name, err))
	}
	return s, nil
}

// runCache remembers the immutable parts of runs, which every rollout reads: their
// spec and their tasks. The zero value is ready.
type runCache struct {
	mu    sync.Mutex // held only to look up an entry
	runs  map[string]*cacheEntry
	order []string
}

// cacheEntry is one run in the cache. It exists while the run is being read, too.
type cacheEntry struct {
	lock lock
	run  *cachedRun // nil until it was read
}

// cachedRun is a run with its decoded spec and tasks.
type cachedRun struct {
	run   record.Run
	spec  spec.Spec
	tasks map[record.Kind][]tasks.Task
}

// maxCachedRuns is how many runs a cache remembers.
const maxCachedRuns = 16

// get returns a run. The first call reads it from the store. A caller that waits while
// another one reads the run may give up, and no caller waits for another run.
func (c *runCache) get(ctx context.Context, name string, runs Runs, blobs Blobs) (*cachedRun, error) {
	e := c.entry(name)
	if err := e.lock.acquire(ctx); err != nil {
		return nil, fmt.Errorf("wait to read run %s: %w", name, err)
	}
	defer e.lock.release()
	if e.run == nil {
		r, err := readRun(ctx, name, runs, blobs)
		if err != nil {
			return nil, err
		}
		e.run = r
	}
	return e.run, nil
}

// entry returns the entry of a run. A new one may replace the oldest.
func (c *runCache) entry(name string) *cacheEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.runs[name]; ok {
		return e
	}
	if c.runs == nil {
		c.runs = map[string]*cacheEntry{}
	}
	c.runs[name] = &cacheEntry{}
	c.order = append(c.order, name)
	if len(c.order) > maxCachedRuns {
		delete(c.runs, c.order[0])
		c.order = c.order[1:]
	}
	return c.runs[name]
}

// readRun reads a run from the store.
func readRun(ctx context.Context, name string, runs Runs, blobs Blobs) (*cachedRun, error) {
	run, s, err := readSpec(ctx, runs, name)
	if err != nil {
		return nil, err
	}
	r := &cachedRun{run: run, spec: s, tasks: map[record.Kind][]tasks.Task{}}
	for kind, split := range run.Splits {
		data, err := blobs.Get(ctx, split.Digest)
		if err != nil {
			return nil, fmt.Errorf("read the %s tasks of run %s: %w", kind, name, err)
		}
		if r.tasks[kind], err = tasks.Decode(data); err != nil {
			return nil, fmt.Errorf("decode the %s tasks of run %s: %w", kind, name, err)
		}
	}
	return r, nil
}

// task returns the task at index of the split that kind reads.
func (r *cachedRun) task(kind record.Kind, index int) (tasks.Task, error) {
	kind = kind.Split()
	list := r.tasks[kind]
	if index < 0 || index >= len(list) {
		return tasks.Task{}, invalid(fmt.Errorf("task %d of the %s split of run %s: there are %d", index, kind, r.run.Name, len(list)))
	}
	return list[index], nil
}

// ScoreBatch lets version Step−1 of the critic estimate the return that is still to come,
// before each sampled token of the step's attempts. With several policies in the spec, the
// critic of each scores the calls that the policy answered. A repeated call gives the same
// values, to the bit if the engine is deterministic.
func (t *Trainer) ScoreBatch(ctx context.Context, in ScoreBatchInput) (_ ScoreBatchResult, err error) {
	defer temporalError(&err)
	id := model.VersionID{Run: in.Run, Policy: model.CriticPolicy, Number: in.Step - 1}
	digest, err := t.score(ctx, "values", StepGroups{Run: in.Run, Step: in.Step, Groups: in.Groups}, id,
		func(ctx context.Context, m *update.Maker, run update.Run, trajectories []record.Trajectory) ([]byte, error) {
			var policies []string
			if len(run.Spec.Policies) > 0 {
				policies = run.Spec.CriticPolicies("")
			}
			return m.ScoreCritic(ctx, id, policies, run, trajectories)
		})
	return ScoreBatchResult{Values: digest}, err
}

// ScoreReference computes the log-probabilities of the attempts' sampled tokens under
// version 0 of a policy. They are part of the rewards if the spec has
// credit.kl_in_reward. With several policies in the spec, version 0 of each whose rewards
// contain them scores the calls that the policy answered. A repeated call gives the same
// values, to the bit if the engine is deterministic.
func (t *Trainer) ScoreReference(ctx context.Context, in ScoreReferenceInput) (_ ScoreReferenceResult, err error) {
	defer temporalError(&err)
	id := model.VersionID{Run: in.Run, Policy: in.Policy}
	digest, err := t.score(ctx, "log-probabilities", in.StepGroups, id,
		func(ctx context.Context, m *update.Maker, run update.Run, trajectories []record.Trajectory) ([]byte, error) {
			next := id
			next.Number = in.Step
			var policies []string
			for _, policy := range run.Spec.TrainedPolicies() {
				if run.Spec.ForPolicy(policy).Credit.KLInReward != nil {
					policies = append(policies, policy)
				}
			}
			return m.ScoreReference(ctx, next, policies, run, trajectories)
		})
	return ScoreReferenceResult{Reference: digest}, err
}

// score stores the values or log-probabilities that a version computes for the attempts
// of a step.
func (t *Trainer) score(ctx context.Context, numbers string, of StepGroups, by model.VersionID, f func(context.Context, *update.Maker, update.Run, []record.Trajectory) ([]byte, error)) (string, error) {
	subject := fmt.Sprintf("%s of step %d by %s", numbers, of.Step, by)
	return exclusively(ctx, t, subject, func(ctx context.Context, m *update.Maker) (string, error) {
		run, err := t.run(ctx, of.Run)
		if err != nil {
			return "", fmt.Errorf("%s: %w", subject, err)
		}
		trajectories, err := t.Attempts.Trajectories(ctx, addresses(of))
		if err != nil {
			return "", fmt.Errorf("%s: read the trajectories: %w", subject, err)
		}
		wake, err := t.sleep(ctx, m, of.Run)
		if err != nil {
			return "", fmt.Errorf("%s: %w", subject, err)
		}
		defer wake()
		data, err := f(ctx, m, run, trajectories)
		if err != nil {
			return "", fmt.Errorf("%s: %w", subject, err)
		}
		digest, err := t.Blobs.Put(ctx, data)
		if err != nil {
			return "", fmt.Errorf("store the %s: %w", subject, err)
		}
		return digest, nil
	})
}
