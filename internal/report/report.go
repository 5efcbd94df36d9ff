package report

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// Store is what a report reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Steps(ctx context.Context, run, policy string) ([]record.Step, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	Versions(ctx context.Context, run, policy string) ([]model.Version, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Decisions(ctx context.Context, run, policy string) ([]record.Decision, error)
	Quarantines(ctx context.Context, run, policy string) ([]record.Quarantine, error)
	Trials(ctx context.Context, run, policy string) ([]record.Trial, error)
	Replays(ctx context.Context, run, policy string) ([]record.Replayed, error)
	Divergences(ctx context.Context, run string) ([]trace.Divergence, error)
	RefusalsOfRun(ctx context.Context, run, policy string) ([]trace.RefusalCount, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Report is the account of a policy of a run. The keys of its JSON are a public
// contract.
type Report struct {
	Run    string        `json:"run"`
	Policy string        `json:"policy"`
	Status record.Status `json:"status"`
	// Error says why a run that ended did not complete.
	Error string `json:"error,omitempty"`
	// Steps are finished, of Planned.
	Steps   int     `json:"steps"`
	Planned int     `json:"planned"`
	Prompts Prompts `json:"prompts"`
	// Samples are the rollouts that were trained on.
	Samples       int                     `json:"samples"`
	Attempts      Attempts                `json:"attempts"`
	ByKind        map[trace.Kind]Attempts `json:"attempts_by_kind"`
	Interruptions Interruptions           `json:"interruptions"`
	ByStep        []Step                  `json:"by_step"`
	Quarantines   []record.Quarantine     `json:"quarantines"`
	Divergences   []Divergence            `json:"divergences"`
	Refusals      []Refusal               `json:"refusals"` // of model calls, by code
	Versions      int                     `json:"versions"`
	Promoted      *int                    `json:"promoted"` // null before the first promotion
	Pinned        bool                    `json:"pinned"`
	Pointer       map[record.Source]int   `json:"pointer_moves"` // by what moved it
	Promotions    []record.Promotion      `json:"promotions"`
	Decisions     []record.Decision       `json:"decisions"` // those that moved nothing
	Evaluations   []record.Evaluation     `json:"evaluations"`
	// Faults say what is wrong with the run, one a line.
	Faults []string `json:"faults"`
}

// OK reports whether nothing is wrong: every prompt is accounted for.
func (r Report) OK() bool { return len(r.Faults) == 0 }

// Divergence is where an attempt did not repeat what an earlier one had recorded.
type Divergence struct {
	Attempt string `json:"attempt"`
	Call    int    `json:"call"`
	trace.Divergence
}

// material is everything that a report is made from.
type material struct {
	run         record.Run
	spec        spec.Spec
	tasks       []tasks.Task // of the train split
	steps       []record.Step
	batches     map[int]record.Batch
	versions    []model.Version
	evaluations []record.Evaluation
	promotions  []record.Promotion
	decisions   []record.Decision
	quarantines []record.Quarantine
	trials      []record.Trial
	replays     []record.Replayed
	divergences []trace.Divergence
	refusals    []trace.RefusalCount
}

// Of makes the report of a run's policy. Steps are read first: whatever belongs
// to a finished step is on record before it is.
func Of(ctx context.Context, s Store, blobs Blobs, run, policy string) (Report, error) {
	m, err := gather(ctx, s, blobs, run, policy)
	if err != nil {
		return Report{}, fmt.Errorf("report on run %s: %w", run, err)
	}
	r := Report{
		Run: run, Policy: policy, Status: m.run.Status, Error: m.run.Failure().Error, Steps: len(m.steps), Planned: m.spec.Training.Total(len(m.tasks)),
		Quarantines: m.quarantines, Versions: len(m.versions), Promotions: m.promotions, Decisions: m.decisions, Evaluations: m.evaluations,
		Refusals: Refusals(m.refusals), Pointer: map[record.Source]int{}, ByKind: map[trace.Kind]Attempts{},
	}
	for _, p := range m.promotions {
		r.Pointer[p.Source]++
		r.Promoted, r.Pinned = &p.Version, p.Pinned()
	}
	for _, d := range m.divergences {
		r.Divergences = append(r.Divergences, Divergence{d.Address.String(), d.Seq, d})
	}
	r.countAttempts(m)
	if err := r.accountForPrompts(ctx, m, blobs); err != nil {
		return Report{}, fmt.Errorf("report on run %s: %w", run, err)
	}
	r.fill()
	return r, nil
}

// fill makes lists of nothing lists, for who reads the JSON.
func (r *Report) fill() {
	r.ByStep = append([]Step{}, r.ByStep...)
	r.Quarantines = append([]record.Quarantine{}, r.Quarantines...)
	r.Divergences = append([]Divergence{}, r.Divergences...)
	r.Promotions = append([]record.Promotion{}, r.Promotions...)
	r.Decisions = append([]record.Decision{}, r.Decisions...)
	r.Evaluations = append([]record.Evaluation{}, r.Evaluations...)
	r.Faults = append([]string{}, r.Faults...)
}

func gather(ctx context.Context, s Store, blobs Blobs, run, policy string) (m material, err error) {
	if m.run, err = s.Run(ctx, run); err != nil {
		return m, err
	}
	if m.run.Status == record.Refused {
		return m, nil // nothing came of its spec
	}
	if m.spec, err = spec.Stored(m.run.Spec); err != nil {
		return m, fmt.Errorf("decode its spec: %w", err)
	}
	m.spec = m.spec.WithDefaults()
	if split := m.run.Splits[trace.Train]; split.Digest != "" {
		data, err := blobs.Get(ctx, split.Digest)
		if err != nil {
			return m, fmt.Errorf("read its tasks: %w", err)
		}
		if m.tasks, err = tasks.Decode(data); err != nil {
			return m, fmt.Errorf("decode its tasks: %w", err)
		}
	}
	var batches []record.Batch
	for _, read := range []func() error{
		func() error { m.steps, err = s.Steps(ctx, run, policy); return err },
		func() error { batches, err = s.Batches(ctx, run, policy); return err },
		func() error { m.versions, err = s.Versions(ctx, run, policy); return err },
		func() error { m.evaluations, err = s.Evaluations(ctx, run); return err },
		func() error { m.promotions, err = s.Promotions(ctx, run, policy); return err },
		func() error { m.decisions, err = s.Decisions(ctx, run, policy); return err },
		func() error { m.quarantines, err = s.Quarantines(ctx, run, policy); return err },
		func() error { m.trials, err = s.Trials(ctx, run, policy); return err },
		func() error { m.replays, err = s.Replays(ctx, run, policy); return err },
		func() error { m.divergences, err = s.Divergences(ctx, run); return err },
		func() error { m.refusals, err = s.RefusalsOfRun(ctx, run, policy); return err },
	} {
		if err := read(); err != nil {
			return m, err
		}
	}
	m.batches = make(map[int]record.Batch, len(batches))
	for _, b := range batches {
		m.batches[b.Step] = b
	}
	return m, nil
}
