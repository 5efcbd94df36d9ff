package report

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/tasks/stream"
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
	Divergences(ctx context.Context, run string) ([]record.Divergence, error)
	RefusalsOfRun(ctx context.Context, run, policy string) ([]record.RefusalCount, error)
	PolicyUsage(ctx context.Context, run, policy string) ([]record.PolicyUsage, error)
	Forgotten(ctx context.Context, run string) ([]record.Forgotten, error)
	Segments(ctx context.Context, run, policy string) ([]record.Segment, error)
	promptsearch.Store
}

// MaxActions is how many of the newest actions on a run are read.
const MaxActions = 1000

// Scores reads the rewards of a step, or of the evaluation of a version.
type Scores interface {
	Scores(ctx context.Context, run, policy string, kind record.Kind, step int) ([]record.Score, error)
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
	segments    []record.Segment      // of a run that learns from conversations
	versions    []model.Version
	evaluations []record.Evaluation
	promotions  []record.Promotion
	decisions   []record.Decision
	quarantines []record.Quarantine
	actions     []record.Action // by people, the newest first
	trials      []record.Trial
	replays     []record.Replayed
	divergences []record.Divergence
	refusals    []record.RefusalCount
	usage       []record.PolicyUsage // of each of several policies
	search      *promptsearch.Search // nil unless the run searches for prompts
	removed     []record.Forgotten   // what was removed from the run
	forgotten   map[int]bool         // the steps whose batches were removed with a task
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
	if split := m.run.Splits[record.Train]; split.Digest != "" {
		data, err := blobs.Get(ctx, split.Digest)
		if err != nil {
			return m, fmt.Errorf("read its tasks: %w", err)
		}
		if m.tasks, err = tasks.Decode(data); err != nil {
			return m, fmt.Errorf("decode its tasks: %w", err)
		}
	}
	pointer := policy
	if m.spec.Optimizer != nil {
		if m.search, err = promptsearch.Read(ctx, s, run); err != nil {
			return m, err
		}
		pointer = record.PromptsPolicy
	}
	var batches []record.Batch
	var choices []record.Choice
	for _, read := range []func() error{
		func() error { m.steps, err = s.Steps(ctx, run, policy); return err },
		func() error { batches, err = s.Batches(ctx, run, policy); return err },
		func() error { m.versions, err = s.Versions(ctx, run, policy); return err },
		func() error { m.evaluations, err = s.Evaluations(ctx, run); return err },
		func() error { m.promotions, m.decisions, err = pointersOf(ctx, s, m.spec, run, pointer); return err },
		func() error { m.quarantines, err = s.Quarantines(ctx, run, policy); return err },
		func() error { m.actions, err = s.Actions(ctx, run, MaxActions); return err },
		func() error { choices, err = s.Choices(ctx, run, policy); return err },
		func() error { m.removed, err = s.Forgotten(ctx, run); return err },
		func() error {
			if m.spec.FromTraffic() {
				m.segments, err = s.Segments(ctx, run, policy)
			}
			return err
		},
		func() error { m.trials, err = s.Trials(ctx, run, policy); return err },
		func() error { m.replays, err = s.Replays(ctx, run, policy); return err },
		func() error { m.divergences, err = s.Divergences(ctx, run); return err },
		func() error { m.refusals, err = s.RefusalsOfRun(ctx, run, policy); return err },
		func() error {
			if len(m.spec.Policies) > 0 {
				m.usage, err = s.PolicyUsage(ctx, run, policy)
			}
			return err
		},
	} {
		if err := read(); err != nil {
			return m, err
		}
	}
	m.forgotten, _ = record.ForgottenSteps(m.removed)
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

// Pointers has the moves of promoted pointers, and the decisions about them.
type Pointers interface {
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Decisions(ctx context.Context, run, policy string) ([]record.Decision, error)
}

// pointersOf returns the moves of the promoted pointer of a policy of the run, and the
// decisions about it; those of all policies, if each is promoted alone.
func pointersOf(ctx context.Context, s Pointers, of spec.Spec, run, policy string) (moves []record.Promotion, decisions []record.Decision, err error) {
	policies := []string{policy}
	if of.Promotion.Alone {
		policies = of.PolicyNames()
	}
	for _, name := range policies {
		m, err := s.Promotions(ctx, run, name)
		if err != nil {
			return nil, nil, err
		}
		d, err := s.Decisions(ctx, run, name)
		if err != nil {
			return nil, nil, err
		}
		moves, decisions = append(moves, m...), append(decisions, d...)
	}
	return moves, decisions, nil
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
		lines = append(lines, Line{d.At, ofPolicy(d.Policy) + text})
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
	return lines
}

// ofPolicy returns the beginning of a sentence about a version of one of several policies. It is
// empty for the versions of a run.
func ofPolicy(policy string) string {
	if policy == "" || policy == model.DefaultPolicy || policy == record.PromptsPolicy {
		return ""
	}
	return policy + ", "
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
	text := fmt.Sprintf("%s: %s%s", p.Source, ofPolicy(p.Policy), what)
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += fmt.Sprintf(" (%s)", strings.TrimPrefix(p.Reason, fmt.Sprintf("version %d promoted: ", p.Version)))
	}
	return text
}

// taskOf returns the task that the streams, or a curriculum's choice, have for a prompt
// of a finished step. If a choice names a task that does not exist, that is a fault.
func (l *ledger) taskOf(p prompt) tasks.Task {
	var index int
	switch {
	case l.spec.Training.Chooses():
		index = l.choices[p.step].DrawOf(p.kind, p.task).Task
	case p.kind == record.Reserve:
		index = stream.Reserve(l.spec.Seed, len(l.tasks), p.step, p.task)
	default:
		index, _ = stream.At(l.spec.Seed, len(l.tasks), p.task)
	}
	if index < 0 || index >= len(l.tasks) {
		l.fault("%s is task %d of the train split by the choice of its step, and there are %d", p, index, len(l.tasks))
		return tasks.Task{}
	}
	return l.tasks[index]
}

// checkChoices makes the choice of each finished step again, from the results on record,
// and reports the choices that differ.
func (l *ledger) checkChoices() {
	if !l.spec.Training.Chooses() || len(l.removed) > 0 {
		return // a choice may depend on the metadata of tasks that were forgotten
	}
	scores := l.scores()
	for _, s := range l.steps {
		if made, ok := l.choices[s.Step]; !ok {
			l.fault("step %d is finished, and which tasks it was to attempt is not on record", s.Step)
		} else if err := l.checkChoice(made, scores); err != nil {
			l.fault("the choice of step %d: %v", s.Step, err)
		}
	}
}

func (l *ledger) checkChoice(made record.Choice, scores []record.StepScore) error {
	e := curriculum.Evidence{Spec: l.spec, Tasks: l.tasks, Parts: l.run.Splits[record.Train].Parts, Quarantines: l.quarantines, Evaluations: l.evaluations}
	var settings spec.Curriculum
	if err := json.Unmarshal(made.Settings, &settings); err != nil {
		return fmt.Errorf("its settings can't be read: %w", err)
	}
	if settings.Type != l.spec.Training.Curriculum.Type {
		return fmt.Errorf("it is of type %q, the spec says %q", settings.Type, l.spec.Training.Curriculum.Type)
	}
	e.Spec.Training.Curriculum = &settings
	if before, ok := l.choices[made.Step-1]; ok {
		e.Before = &before
	}
	first, last := curriculum.Window(settings, curriculum.Finished(e.Spec.Training, made.Step), made.Step, e.Before)
	e.Scores = scoresBetween(scores, first, last)
	again, err := e.Choose(made.Step)
	if err != nil {
		return err
	}
	if made.Places != again.Places || len(made.Draws) != len(again.Draws) || made.Stage != again.Stage {
		return fmt.Errorf("%d tasks of stage %d for %d places are on record, the results give %d of stage %d for %d",
			len(made.Draws), made.Stage+1, made.Places, len(again.Draws), again.Stage+1, again.Places)
	}
	for i, d := range made.Draws {
		if want := again.Draws[i]; d.Task != want.Task || d.Why != want.Why {
			return fmt.Errorf("place %d is task %d (%s), but by the results it should be task %d (%s)", i, d.Task, d.Why, want.Task, want.Why)
		}
	}
	return nil
}

// scores returns the rewards of all groups by step: for each sample the reward of the
// last attempt that got one.
func (l *ledger) scores() []record.StepScore {
	var out []record.StepScore
	for p, samples := range l.rewards {
		for sample, reward := range samples {
			out = append(out, record.StepScore{Kind: p.kind, Step: p.step, TaskID: l.taskIDs[p], Score: record.Score{Task: p.task, Sample: sample, Reward: reward}})
		}
	}
	slices.SortFunc(out, func(a, b record.StepScore) int { return cmp.Compare(a.Step, b.Step) })
	return out
}

// scoresBetween returns the scores of steps first to last. scores must be sorted by step.
func scoresBetween(scores []record.StepScore, first, last int) []record.StepScore {
	at := func(step int) int {
		i, _ := slices.BinarySearchFunc(scores, step, func(s record.StepScore, step int) int { return cmp.Compare(s.Step, step) })
		return i
	}
	if first > last {
		return nil
	}
	return scores[at(first):at(last+1)]
}
