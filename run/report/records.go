package report

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// Store is the part of a store that a report reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Actions(ctx context.Context, run string, most int) ([]record.Action, error)
	Steps(ctx context.Context, run, policy string) ([]record.Step, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
	Versions(ctx context.Context, run, policy string) ([]model.Version, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Scores
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Decisions(ctx context.Context, run, policy string) ([]record.Decision, error)
	Quarantines(ctx context.Context, run, policy string) ([]record.Quarantine, error)
	Choices(ctx context.Context, run, policy string) ([]record.Choice, error)
	Trials(ctx context.Context, run, policy string) ([]record.Trial, error)
	Replays(ctx context.Context, run, policy string) ([]record.Replayed, error)
	Divergences(ctx context.Context, run string) ([]trace.Divergence, error)
	RefusalsOfRun(ctx context.Context, run, policy string) ([]trace.RefusalCount, error)
}

// MaxActions is how many of the newest actions on a run are read.
const MaxActions = 1000

// Scores reads the rewards of a step, or of the evaluation of a version.
type Scores interface {
	Scores(ctx context.Context, run, policy string, kind trace.Kind, step int) ([]record.Score, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// records holds everything from which a report is made.
type records struct {
	run         record.Run
	spec        spec.Spec
	tasks       []tasks.Task // of the train split
	steps       []record.Step
	batches     map[int]record.Batch
	choices     map[int]record.Choice // by step
	versions    []model.Version
	evaluations []record.Evaluation
	promotions  []record.Promotion
	decisions   []record.Decision
	quarantines []record.Quarantine
	actions     []record.Action // by people, the newest first
	trials      []record.Trial
	replays     []record.Replayed
	divergences []trace.Divergence
	refusals    []trace.RefusalCount
}

func readRecords(ctx context.Context, s Store, blobs Blobs, run, policy string) (m records, err error) {
	if m.run, err = s.Run(ctx, run); err != nil {
		return m, err
	}
	if m.run.Status == record.Refused {
		return m, nil // a refused run has no results
	}
	if m.spec, err = spec.Stored(m.run.Spec); err != nil {
		return m, fmt.Errorf("decode its spec: %w", err)
	}
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
	var choices []record.Choice
	for _, read := range []func() error{
		func() error { m.steps, err = s.Steps(ctx, run, policy); return err },
		func() error { batches, err = s.Batches(ctx, run, policy); return err },
		func() error { m.versions, err = s.Versions(ctx, run, policy); return err },
		func() error { m.evaluations, err = s.Evaluations(ctx, run); return err },
		func() error { m.promotions, err = s.Promotions(ctx, run, policy); return err },
		func() error { m.decisions, err = s.Decisions(ctx, run, policy); return err },
		func() error { m.quarantines, err = s.Quarantines(ctx, run, policy); return err },
		func() error { m.actions, err = s.Actions(ctx, run, MaxActions); return err },
		func() error { choices, err = s.Choices(ctx, run, policy); return err },
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
	m.choices = make(map[int]record.Choice, len(choices))
	for _, c := range choices {
		m.choices[c.Step] = c
	}
	return m, nil
}

// PlannedSteps returns how many steps a run has in all: of its spec or, if it went on for
// more once it had ended, of the last such action. Actions come with the newest first.
func PlannedSteps(ofSpec int, actions []record.Action) int {
	for _, a := range actions {
		if n, ok := a.Input.Values[spec.KeySteps]; ok && a.Name == record.ActionRetry && a.Outcome == record.ActionDone {
			return int(n)
		}
	}
	return ofSpec
}

// Line is a move of the promoted pointer, or a decision about it.
type Line struct {
	At   time.Time
	Text string
}

// History returns moves, and decisions that did not move the pointer, in chronological
// order.
func History(moves []record.Promotion, decisions []record.Decision) []Line {
	lines := make([]Line, 0, len(moves)+len(decisions))
	for _, p := range moves {
		lines = append(lines, Line{p.At, Move(p)})
	}
	for _, d := range decisions {
		text := d.Reason
		if !strings.HasPrefix(text, fmt.Sprintf("version %d %s: ", d.Candidate, d.Verdict)) { // otherwise the reason already contains the verdict
			text = d.Verdict + ": " + text
		}
		lines = append(lines, Line{d.At, text})
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
	return lines
}

// Move describes a move of the promoted pointer in a sentence.
func Move(p record.Promotion) string {
	what := fmt.Sprintf("version %d → %d", p.Previous, p.Version)
	switch {
	case p.Previous < 0:
		what = fmt.Sprintf("version %d", p.Version)
	case p.Previous == p.Version:
		what = fmt.Sprintf("version %d, as before", p.Version)
	}
	text := fmt.Sprintf("%s: %s", p.Source, what)
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += fmt.Sprintf(" (%s)", strings.TrimPrefix(p.Reason, fmt.Sprintf("version %d promoted: ", p.Version)))
	}
	return text
}
