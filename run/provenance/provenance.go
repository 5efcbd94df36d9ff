// Package provenance finds out what a version was made of: the steps behind it, and their
// batches, tasks, attempts and calls, back to version 0, and on to the version of another
// run from which that started. And it finds the versions that were made from a step.
//
// It reads the batches themselves, which are what was trained, and no counter. It holds one
// batch in memory at a time, so a history of any length can be walked.
//
// It is no account of a run: package report tells what became of every prompt, this one
// what went into one version. It does not know what the first weights of a run were trained
// on.
package provenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Store is the part of a store that the package reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Runs(ctx context.Context) ([]record.Run, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
	Versions(ctx context.Context, run, policy string) ([]model.Version, error)
	TrialsOfStep(ctx context.Context, run string, kind record.Kind, step int) ([]record.Trial, error)
	Judged(ctx context.Context, run, policy string, step int) (int, error)
	Reflections(ctx context.Context, run string) ([]record.Reflection, error)
	Forgotten(ctx context.Context, run string) ([]record.Forgotten, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Provenance is the summary of what a version was made of. The keys of its JSON are a
// public contract.
type Provenance struct {
	Version string `json:"version"`
	Weights string `json:"weights"`
	// Steps, Attempts, Calls and Tokens count what is in the batches of all parts; Tasks
	// counts different ids. Tokens are those that the loss saw for this policy.
	Steps    int `json:"steps"`
	Tasks    int `json:"tasks"`
	Attempts int `json:"attempts"`
	Calls    int `json:"calls"`
	Tokens   int `json:"tokens"`
	// Forgotten counts the steps whose batches were removed with a task: what else they had
	// is not known any more.
	Forgotten int `json:"forgotten_steps"`
	// Parts are the runs that the version comes from, its own first.
	Parts []Part `json:"parts"`
}

// Part is the share of one run in a version.
type Part struct {
	Run     string `json:"run"`
	Policy  string `json:"policy"`
	Version int    `json:"version"` // of this run
	// SpecDigest, Engine and Splits are those of the run: its spec, what trained, and the
	// snapshots of its tasks.
	SpecDigest string                       `json:"spec_digest"`
	Engine     string                       `json:"engine"`
	Splits     map[record.Kind]record.Split `json:"splits"`
	Created    time.Time                    `json:"created,omitzero"`
	Steps      int                          `json:"steps"`
	Tasks      int                          `json:"tasks"`
	Attempts   int                          `json:"attempts"`
	Calls      int                          `json:"calls"`
	Tokens     int                          `json:"tokens"`
	Forgotten  int                          `json:"forgotten_steps"`
	// Judge is the model that scored calls, and Judgments how many it made for these steps;
	// Reflector is what rewrote prompts, and Reflections how many replies it gave.
	Judge       string `json:"judge,omitempty"`
	Judgments   int    `json:"judgments,omitempty"`
	Reflector   string `json:"reflector,omitempty"`
	Reflections int    `json:"reflections,omitempty"`
	// Fingerprints are those of the numerics that made the versions.
	Fingerprints []string `json:"fingerprints"`
	// Source says what version 0 of the run is: another version, a model, or random weights.
	Source string `json:"source"`
	// Gone says that the run was forgotten; everything before it is not known then.
	Gone string `json:"gone,omitempty"`

	before *model.VersionID // from which version 0 was copied
}

// Step is a step behind a version.
type Step struct {
	Run       string    `json:"run"`
	Policy    string    `json:"policy"`
	Step      int       `json:"step"`
	Batch     string    `json:"batch"`
	Forgotten bool      `json:"forgotten,omitempty"` // its batch was removed with a task
	Attempts  []Attempt `json:"attempts"`
}

// Attempt is an attempt in the batch of a step.
type Attempt struct {
	Attempt string  `json:"attempt"`
	Task    string  `json:"task"`
	Step    int     `json:"step"`
	Reward  float64 `json:"reward"`
	// Tokens counts the tokens that the loss saw, and Calls the calls that they are of.
	Tokens  int    `json:"tokens"`
	Calls   []Call `json:"calls"`
	LeftOut string `json:"left_out,omitempty"` // why it taught nothing
}

// Call is a call of which tokens were trained.
type Call struct {
	Attempt string `json:"attempt"`
	Call    int    `json:"call"`
	Tokens  int    `json:"tokens"`
}

// Walker reads what versions were made of.
type Walker struct {
	Store Store
	Blobs Blobs
}

// Of returns what a version was made of, and calls visit with each step, the latest first.
// visit may be nil. An error of visit ends the walk.
func (w Walker) Of(ctx context.Context, id model.VersionID, visit func(Step) error) (Provenance, error) {
	v, err := w.Store.Version(ctx, id)
	if err != nil {
		return Provenance{}, fmt.Errorf("provenance of %s: %w", id, err)
	}
	out := Provenance{Version: id.String(), Weights: v.Weights, Parts: []Part{}}
	all := map[string]bool{}
	for next := &id; next != nil; {
		p, err := w.part(ctx, *next, all, visit)
		if err != nil {
			return out, fmt.Errorf("provenance of %s: %s: %w", id, *next, err)
		}
		out.Parts = append(out.Parts, p)
		out.Steps, out.Attempts, out.Calls, out.Tokens = out.Steps+p.Steps, out.Attempts+p.Attempts, out.Calls+p.Calls, out.Tokens+p.Tokens
		out.Forgotten += p.Forgotten
		next = p.before
	}
	out.Tasks = len(all)
	return out, nil
}

// part walks from a version to version 0 of its run. It adds the ids of tasks to all.
func (w Walker) part(ctx context.Context, id model.VersionID, all map[string]bool, visit func(Step) error) (Part, error) {
	p := Part{Run: id.Run, Policy: id.Policy, Version: id.Number, Fingerprints: []string{}, Splits: map[record.Kind]record.Split{}}
	run, err := w.Store.Run(ctx, id.Run)
	if errors.Is(err, record.ErrForgotten) {
		p.Gone = err.Error()
		return p, nil
	}
	if err != nil {
		return p, err
	}
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return p, fmt.Errorf("decode the spec of run %s: %w", run.Name, err)
	}
	removed, err := w.Store.Forgotten(ctx, id.Run)
	if err != nil {
		return p, err
	}
	forgotten, _ := record.ForgottenSteps(removed)
	if err := w.describe(ctx, &p, run, s); err != nil {
		return p, err
	}
	tasks := map[string]bool{}
	for at := id; ; {
		v, err := w.Store.Version(ctx, at)
		if err != nil {
			return p, err
		}
		if v.Fingerprint != "" && !slices.Contains(p.Fingerprints, v.Fingerprint) {
			p.Fingerprints = append(p.Fingerprints, v.Fingerprint)
		}
		if v.Batch == "" { // version 0, or a joint version that no batch made
			if v.Parent < 0 {
				break
			}
			at.Number = v.Parent
			continue
		}
		step, err := w.step(ctx, v, forgotten[v.Number])
		if err != nil {
			return p, err
		}
		p.add(step, tasks)
		if s.Credit.Judge != nil {
			n, err := w.Store.Judged(ctx, id.Run, model.DefaultPolicy, v.Number)
			if err != nil {
				return p, err
			}
			p.Judgments += n
		}
		if visit != nil {
			if err := visit(step); err != nil {
				return p, err
			}
		}
		if v.Parent < 0 {
			break
		}
		at.Number = v.Parent
	}
	p.Tasks = len(tasks)
	for task := range tasks {
		all[task] = true
	}
	return p, nil
}

// describe adds what the spec of a run says.
func (w Walker) describe(ctx context.Context, p *Part, run record.Run, s spec.Spec) error {
	of := s.ForPolicy(p.Policy)
	p.SpecDigest, p.Splits, p.Created, p.Engine = run.SpecDigest, run.Splits, run.Created, of.Model.Engine
	if s.Credit.Judge != nil {
		p.Judge = s.Credit.Judge.Model
	}
	if o := s.Optimizer; o != nil {
		p.Reflector = cmp.Or(o.Reflector.Model, o.Reflector.Type)
	}
	replies, err := w.Store.Reflections(ctx, run.Name)
	if err != nil {
		return err
	}
	p.Reflections = len(replies)
	switch m := of.Model; {
	case m.Version != "":
		p.Source = "version " + m.Version
		name, err := spec.ParseVersion(m.Version)
		if err != nil {
			return fmt.Errorf("model.version of run %s: %w", run.Name, err)
		}
		before, err := w.source(ctx, name, p.Policy)
		if err != nil {
			return err
		}
		p.before = &before
	case m.WarmStart != nil:
		p.Source = fmt.Sprintf("model %s, after a warm start on %s", cmp.Or(m.Base, "tiny"), m.WarmStart.Demonstrations)
	default:
		p.Source = "model " + cmp.Or(m.Base, "tiny")
	}
	return nil
}

// source returns the version of another run from which a policy of a run started: as
// activities decide it when the run begins.
func (w Walker) source(ctx context.Context, name spec.VersionName, policy string) (model.VersionID, error) {
	id := model.VersionID{Run: name.Run, Policy: cmp.Or(name.Policy, model.DefaultPolicy), Number: name.Number}
	run, err := w.Store.Run(ctx, name.Run)
	if errors.Is(err, record.ErrForgotten) || name.Policy != "" {
		return id, nil
	}
	if err != nil {
		return id, err
	}
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return id, fmt.Errorf("decode the spec of run %s: %w", name.Run, err)
	}
	if slices.Contains(s.PolicyNames(), policy) {
		id.Policy = policy
	}
	return id, nil
}

// step reads the batch of which a version was made.
func (w Walker) step(ctx context.Context, v model.Version, forgotten bool) (Step, error) {
	out := Step{Run: v.Run, Policy: v.Policy, Step: v.Number, Batch: v.Batch, Attempts: []Attempt{}}
	data, err := w.Blobs.Get(ctx, v.Batch)
	if errors.Is(err, record.ErrNotFound) && forgotten {
		out.Forgotten = true
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("read the batch of step %d: %w", v.Number, err)
	}
	b, err := hf.DecodeBatch(data)
	if err != nil {
		return out, fmt.Errorf("batch of step %d: %w", v.Number, err)
	}
	tasks, err := w.tasksOf(ctx, b)
	if err != nil {
		return out, fmt.Errorf("attempts in the batch of step %d: %w", v.Number, err)
	}
	for _, t := range b.Trajectories {
		out.Attempts = append(out.Attempts, Attempt{Attempt: t.Attempt, Task: tasks[t.Attempt], Step: v.Number, Reward: t.Reward, Calls: []Call{}, LeftOut: t.LeftOut})
	}
	for _, r := range b.Rows {
		if r.Policy != "" && v.Policy != model.DefaultPolicy && r.Policy != v.Policy {
			continue // another policy was trained on it
		}
		out.Attempts[r.Trajectory].add(r)
	}
	return out, nil
}

// add counts the trained tokens of a row.
func (a *Attempt) add(r model.BatchRow) {
	for t, sampled := range r.Sampled {
		if !sampled {
			continue
		}
		a.Tokens++
		call := int(r.Calls[t])
		i := slices.IndexFunc(a.Calls, func(c Call) bool { return c.Call == call })
		if i < 0 {
			i, a.Calls = len(a.Calls), append(a.Calls, Call{Attempt: a.Attempt, Call: call})
		}
		a.Calls[i].Tokens++
	}
}

// tasksOf returns the id of the task of each attempt in a batch.
func (w Walker) tasksOf(ctx context.Context, b model.Batch) (map[string]string, error) {
	type group struct {
		run  string
		kind record.Kind
		step int
	}
	read, tasks := map[group]bool{}, map[string]string{}
	for _, t := range b.Trajectories {
		a, err := record.ParseAddress(t.Attempt)
		if err != nil {
			return nil, err
		}
		of := group{a.Run, a.Kind, a.Step}
		if read[of] {
			continue
		}
		read[of] = true
		trials, err := w.Store.TrialsOfStep(ctx, a.Run, a.Kind, a.Step)
		if err != nil {
			return nil, err
		}
		for _, trial := range trials {
			tasks[trial.Address.String()] = trial.TaskID
		}
	}
	return tasks, nil
}

func (p *Part) add(s Step, tasks map[string]bool) {
	p.Steps++
	if s.Forgotten {
		p.Forgotten++
	}
	p.Attempts += len(s.Attempts)
	for _, a := range s.Attempts {
		tasks[a.Task] = true
		p.Calls += len(a.Calls)
		p.Tokens += a.Tokens
	}
}

// MadeFrom returns the versions that were made from a step of a run: those of the run from
// that step on, and all of runs that started from one of these, and so on. Ranges of one
// run are one text, such as "demo@3 to demo@40".
func (w Walker) MadeFrom(ctx context.Context, run string, step int) ([]string, error) {
	runs, err := w.Store.Runs(ctx)
	if err != nil {
		return nil, err
	}
	first := map[string]int{run: step}
	for found := true; found; { // until no further run starts from one of these
		found = false
		for _, r := range runs {
			s, err := spec.Stored(r.Spec)
			if _, known := first[r.Name]; known || err != nil {
				continue // a run that was refused may have any spec
			}
			for _, text := range sources(s) {
				name, err := spec.ParseVersion(text)
				if from, ok := first[name.Run]; err == nil && ok && name.Number >= from {
					first[r.Name], found = 0, true
				}
			}
		}
	}
	var out []string
	slices.SortFunc(runs, func(a, b record.Run) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range runs {
		from, ok := first[r.Name]
		if !ok {
			continue
		}
		versions, err := w.Store.Versions(ctx, r.Name, model.DefaultPolicy)
		if err != nil {
			return nil, err
		}
		versions = slices.DeleteFunc(versions, func(v model.Version) bool { return v.Number < from })
		switch n := len(versions); n {
		case 0:
		case 1:
			out = append(out, versions[0].String())
		default:
			out = append(out, fmt.Sprintf("%s to %s", versions[0].VersionID, versions[n-1].VersionID))
		}
	}
	return out, nil
}

// sources returns the versions from which the policies of a spec start.
func sources(s spec.Spec) []string {
	var out []string
	for _, policy := range append([]string{model.DefaultPolicy}, s.PolicyNames()...) {
		if v := s.ForPolicy(policy).Model.Version; v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
