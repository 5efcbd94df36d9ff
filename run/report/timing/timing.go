// Package timing tells where the time of a run went: for each finished step from the begin
// of its first attempt to its version on record, for each evaluation, and for version 0.
//
// Attempts overlap, so their time is divided twice. In the wall-clock time of a step each
// moment belongs to one part: the first, in the order of [Rollouts], that any attempt is
// in. The parts of a step sum to its seconds. In attempt-seconds each attempt's own time is
// divided in the same way, and the sums over all attempts are told.
//
// All times are those on record. The clocks of several machines may differ; where that
// would give a part less than no time, it has none. The package only reads, and it reads no
// text and no token.
package timing

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// Store is the part of a store that times are read from.
type Store interface {
	Steps(ctx context.Context, run, policy string) ([]record.Step, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	Versions(ctx context.Context, run, policy string) ([]model.Version, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Times(ctx context.Context, run, policy string, kind record.Kind, step int) ([]record.AttemptTimes, error)
}

// Report is where the time of a policy of a run went. All times are in seconds. The keys of
// its JSON are a public contract.
type Report struct {
	// First is the work for version 0, a warm start too; nil if it is not on record.
	First *Update `json:"first,omitempty"`
	// Mean is the mean of Steps; nil without any.
	Mean        *Step        `json:"mean,omitempty"`
	Steps       []Step       `json:"steps"`
	Evaluations []Evaluation `json:"evaluations"`
}

// Step is a finished step. Seconds is the time from the begin of its first attempt to its
// version on record: the sum of Rollouts, Batch and Update. Next is the time after that.
type Step struct {
	Step     int       `json:"step,omitempty"` // missing in a mean
	Begun    time.Time `json:"begun,omitzero"`
	Seconds  float64   `json:"seconds"`
	Rollouts Rollouts  `json:"rollouts"`
	Batch    Batch     `json:"batch"`
	Update   Update    `json:"update"`
	Next     Next      `json:"next"`
	Attempts Attempts  `json:"attempts"`
}

// Rollouts is the wall-clock time of attempts. A moment belongs to the first part, in this
// order, that an attempt is in.
type Rollouts struct {
	Seconds  float64 `json:"seconds"`  // the sum of the parts
	Decode   float64 `json:"decode"`   // a call samples tokens after its first
	Prefill  float64 `json:"prefill"`  // a call is in a sampler's batch, before its first token
	Queued   float64 `json:"queued"`   // a call waits for a sampler's batch
	Call     float64 `json:"call"`     // a call is under way otherwise: with another server, on its way, or before its version is loaded
	Grading  float64 `json:"grading"`  // a result is graded and recorded
	Between  float64 `json:"between"`  // an agent has had a reply, and makes another call later
	Starting float64 `json:"starting"` // an agent has not made its first call
	Ending   float64 `json:"ending"`   // an agent has had its last reply, and has not ended
	Idle     float64 `json:"idle"`     // no attempt is under way
}

// Attempts sums the time of attempts, each divided like Rollouts. Parts are in
// attempt-seconds; none is idle.
type Attempts struct {
	Count int `json:"count"` // all attempts, those that others replaced too
	Calls int `json:"calls"` // without replayed ones
	// SharedTokens counts tokens of prompts that the sampler did not have to compute.
	SharedTokens int `json:"shared_tokens"`
	Rollouts
}

// Batch is the time from the end of the last attempt to the batch on record.
type Batch struct {
	Seconds float64 `json:"seconds"`
	Wait    float64 `json:"wait"` // until the batch was begun
	Make    float64 `json:"make"`
}

// Update is the time from the batch to the version on record.
type Update struct {
	Seconds   float64 `json:"seconds"`
	Wait      float64 `json:"wait"`      // until the process began that made the version
	Load      float64 `json:"load"`      // reading the parent or, for version 0, the base
	Score     float64 `json:"score"`     // scoring the batch by other policies
	Gradient  float64 `json:"gradient"`  // forward and backward passes
	Optimizer float64 `json:"optimizer"` // the rest of the updates
	Save      float64 `json:"save"`      // writing files
	Other     float64 `json:"other"`     // everything else
}

// Next is the time from the version on record to the first attempt of the next step; after
// the last step, to the record of the step. It is zero if the next step began earlier.
type Next struct {
	Seconds    float64 `json:"seconds"`
	Evaluation float64 `json:"evaluation"` // an evaluation's attempt is under way
	Other      float64 `json:"other"`      // publishing and loading the version, recording the step, queues
}

// Evaluation is the time of the attempts of an evaluation.
type Evaluation struct {
	Split    record.Kind `json:"split"`
	Version  int         `json:"version"`
	Begun    time.Time   `json:"begun,omitzero"`
	Rollouts Rollouts    `json:"rollouts"`
	Attempts Attempts    `json:"attempts"`
}

// Of reads the times of a policy of a run.
func Of(ctx context.Context, s Store, run, policy string) (*Report, error) {
	r := reader{store: s, run: run, policy: policy, batches: map[int]record.Batch{}, versions: map[int]model.Version{}}
	out, err := r.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("times of run %s: %w", run, err)
	}
	return out, nil
}

// reader reads the times of one policy of a run.
type reader struct {
	store       Store
	run, policy string
	batches     map[int]record.Batch
	versions    map[int]model.Version
}

func (r *reader) read(ctx context.Context) (*Report, error) {
	steps, err := r.store.Steps(ctx, r.run, r.policy) // first, because everything of a finished step is recorded before it
	if err != nil {
		return nil, err
	}
	batches, err := r.store.Batches(ctx, r.run, r.policy)
	if err != nil {
		return nil, err
	}
	versions, err := r.store.Versions(ctx, r.run, r.policy)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		r.batches[b.Step] = b
	}
	for _, v := range versions {
		r.versions[v.Number] = v
	}
	out := &Report{Steps: []Step{}, Evaluations: []Evaluation{}}
	if v, ok := r.versions[0]; ok && !v.Begun.IsZero() {
		first := updateOf(v.Begun, v)
		out.First = &first
	}
	evaluating, err := r.evaluations(ctx, out)
	if err != nil {
		return nil, err
	}
	begins := make([]time.Time, len(steps))
	for i, s := range steps {
		one, err := r.step(ctx, s)
		if err != nil {
			return nil, err
		}
		begins[i] = one.Begun
		out.Steps = append(out.Steps, one)
	}
	for i, s := range steps {
		until := s.At
		if i+1 < len(steps) {
			until = begins[i+1]
		}
		out.Steps[i].Next = nextOf(r.versions[s.Step].Created, until, evaluating)
	}
	out.Mean = mean(out.Steps)
	return out, nil
}

// evaluations adds the evaluations on record, and returns when their attempts were.
func (r *reader) evaluations(ctx context.Context, out *Report) ([]interval, error) {
	all, err := r.store.Evaluations(ctx, r.run)
	if err != nil {
		return nil, err
	}
	var evaluating []interval
	for _, e := range all {
		if e.Policy != r.policy {
			continue
		}
		times, err := r.store.Times(ctx, r.run, r.policy, e.Kind, e.Version)
		if err != nil {
			return nil, err
		}
		d := divideAttempts(times)
		out.Evaluations = append(out.Evaluations, Evaluation{Split: e.Kind, Version: e.Version, Begun: d.begun, Rollouts: d.divide(d.ended), Attempts: d.attempts})
		for _, t := range times {
			evaluating = append(evaluating, interval{call, t.Begun, endOf(t)})
		}
	}
	return evaluating, nil
}

// step divides the time of a finished step. Where the record lacks a time, its part has no
// time, and the next part has all of it.
func (r *reader) step(ctx context.Context, s record.Step) (Step, error) {
	var times []record.AttemptTimes
	for _, kind := range []record.Kind{record.Train, record.Reserve} {
		some, err := r.store.Times(ctx, r.run, r.policy, kind, s.Step)
		if err != nil {
			return Step{}, err
		}
		times = append(times, some...)
	}
	batch, version := r.batches[s.Step], r.versions[s.Step]
	d := divideAttempts(times)
	if d.begun.IsZero() { // all tasks of the step are quarantined
		d.begun, d.ended = batch.Begun, batch.Begun
	}
	ended := earlier(d.ended, batch.At)
	out := Step{Step: s.Step, Begun: d.begun, Rollouts: d.divide(ended), Attempts: d.attempts, Update: updateOf(later(ended, batch.At), version)}
	begun := earlier(later(batch.Begun, ended), batch.At)
	out.Batch = Batch{Wait: seconds(ended, begun), Make: seconds(begun, batch.At)}
	out.Batch.Seconds = out.Batch.Wait + out.Batch.Make
	out.Seconds = out.Rollouts.Seconds + out.Batch.Seconds + out.Update.Seconds
	return out, nil
}

// updateOf divides the time from a moment to the record of a version.
func updateOf(from time.Time, v model.Version) Update {
	begun := earlier(later(v.Begun, from), v.Created)
	w := v.Work
	out := Update{
		Seconds: seconds(from, v.Created), Wait: seconds(from, begun), Load: w.Load.Seconds(), Score: w.Score.Seconds(),
		Gradient: w.Gradient.Seconds(), Optimizer: w.Optimizer.Seconds(), Save: w.Save.Seconds(),
	}
	out.Other = max(0, out.Seconds-out.Wait-out.Load-out.Score-out.Gradient-out.Optimizer-out.Save)
	return out
}

func nextOf(from, until time.Time, evaluating []interval) Next {
	out := Next{Seconds: seconds(from, until)}
	if out.Seconds > 0 {
		out.Evaluation = divide(evaluating, from, until)[call].Seconds()
		out.Other = out.Seconds - out.Evaluation
	}
	return out
}

// seconds returns the time between two moments, or 0 if the second is not after the first
// or one of them is not known.
func seconds(from, until time.Time) float64 {
	if from.IsZero() || !until.After(from) {
		return 0
	}
	return until.Sub(from).Seconds()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// maxSteps is how many steps, the newest ones, a text shows one by one.
const maxSteps = 20

// page writes the lines of a text.
type page struct{ readable.Lines }

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	p := &page{readable.Lines{W: w}}
	if r.Mean == nil {
		p.Line("\nWhere the time went: no step is finished")
	} else {
		p.mean(*r.Mean, len(r.Steps))
		p.steps(r.Steps)
	}
	if u := r.First; u != nil {
		p.Line("\nVersion 0: %.2f s, of it gradients %.2f, optimizer %.2f, loading %.2f, saving %.2f", u.Seconds, u.Gradient, u.Optimizer, u.Load, u.Save)
	}
	p.evaluations(r.Evaluations)
	return p.Err
}

// row is a line of the table of parts. Attempts is its number of attempt-seconds, if it
// has one.
type row struct {
	indent   int
	name     string
	seconds  float64
	attempts *float64
}

func rolloutRows(r Rollouts, a *Rollouts) []row {
	return []row{
		{1, "calls: decoding", r.Decode, &a.Decode},
		{1, "calls: prefill", r.Prefill, &a.Prefill},
		{1, "calls: queue of the sampler", r.Queued, &a.Queued},
		{1, "calls: other", r.Call, &a.Call},
		{1, "grading", r.Grading, &a.Grading},
		{1, "agents between calls", r.Between, &a.Between},
		{1, "agents before their first call", r.Starting, &a.Starting},
		{1, "agents after their last call", r.Ending, &a.Ending},
		{1, "no attempt under way", r.Idle, nil},
	}
}

func (p *page) mean(s Step, n int) {
	of := "1 finished step"
	if n > 1 {
		of = fmt.Sprintf("mean of %d finished steps", n)
	}
	p.Line("\nWhere the time of a step went: %s", of)
	p.Line("  %-34s  %9s  %6s  %15s", "", "seconds", "share", "attempt-seconds")
	rows := []row{{0, "rollouts", s.Rollouts.Seconds, &s.Attempts.Seconds}}
	rows = append(rows, rolloutRows(s.Rollouts, &s.Attempts.Rollouts)...)
	rows = append(rows,
		row{0, "batch", s.Batch.Seconds, nil},
		row{1, "waiting, scores", s.Batch.Wait, nil},
		row{1, "credit and batch", s.Batch.Make, nil},
		row{0, "update", s.Update.Seconds, nil},
		row{1, "waiting", s.Update.Wait, nil},
		row{1, "loading the parent", s.Update.Load, nil},
		row{1, "scoring the batch", s.Update.Score, nil},
		row{1, "forward and backward", s.Update.Gradient, nil},
		row{1, "optimizer", s.Update.Optimizer, nil},
		row{1, "writing files", s.Update.Save, nil},
		row{1, "other", s.Update.Other, nil},
		row{0, "step", s.Seconds, nil},
	)
	for _, r := range rows {
		p.row(r, s.Seconds)
	}
	p.Line("  %s and %s a step; %s of their prompts shared with others", readable.Count(s.Attempts.Count, "attempt"),
		readable.Count(s.Attempts.Calls, "call"), readable.Count(s.Attempts.SharedTokens, "token"))
	p.Line("  until the next step: %.2f s, of it evaluation %.2f", s.Next.Seconds, s.Next.Evaluation)
}

// leastShown is how many seconds a part of a step has at least that has a line: less is only
// the time of asking the clock.
const leastShown = 1e-5

// row writes a row with a part of a whole.
func (p *page) row(r row, whole float64) {
	if r.indent > 0 && r.seconds < leastShown && (r.attempts == nil || *r.attempts < leastShown) {
		return
	}
	share, attempts := "", ""
	if whole > 0 {
		share = fmt.Sprintf("%.1f %%", 100*r.seconds/whole)
	}
	if r.attempts != nil {
		attempts = fmt.Sprintf("%.2f", *r.attempts)
	}
	p.Line("  %-34s  %9.2f  %6s  %15s", strings.Repeat("  ", r.indent)+r.name, r.seconds, share, attempts)
}

func (p *page) steps(all []Step) {
	p.Line("\n  %5s  %9s  %9s  %9s  %9s  %9s", "step", "seconds", "rollouts", "batch", "update", "next")
	if more := len(all) - maxSteps; more > 0 {
		p.Line("  … %d before; --json has all", more)
	}
	for _, s := range all[max(0, len(all)-maxSteps):] {
		p.Line("  %5d  %9.2f  %9.2f  %9.2f  %9.2f  %9.2f", s.Step, s.Seconds, s.Rollouts.Seconds, s.Batch.Seconds, s.Update.Seconds, s.Next.Seconds)
	}
}

func (p *page) evaluations(all []Evaluation) {
	if len(all) == 0 {
		return
	}
	p.Line("\nEvaluations\n  %7s  %-5s  %9s  %8s  %9s  %9s  %9s", "version", "split", "seconds", "attempts", "decoding", "grading", "starting")
	for _, e := range all[max(0, len(all)-maxSteps):] {
		r := e.Rollouts
		p.Line("  %7d  %-5s  %9.2f  %8d  %9.2f  %9.2f  %9.2f", e.Version, e.Split, r.Seconds, e.Attempts.Count, r.Decode, r.Grading, r.Starting)
	}
}
