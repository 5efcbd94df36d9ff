package track

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Store is the part of a store that is read.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
	StepsAfter(ctx context.Context, run, policy string, after int) ([]record.Step, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Promoted(ctx context.Context, run, policy string) (record.Promotion, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
}

// Reader reads the entries of a run. It remembers the times of steps, so that it reads a
// step only once. Make one with NewReader.
type Reader struct {
	store    Store
	run      string
	ends     []stepEnd     // of all steps that were read
	pending  []record.Step // that were read, and that the position lacked
	policies []string      // whose promoted versions move; nil until the spec was read
	start    *model.Version
	moves    map[string]moves // by policy
}

// moves are the moves of the promoted version of a policy that were read.
type moves struct {
	last    string // decision of the last one
	entries []sortedEntry
}

// stepEnd says when a step was recorded.
type stepEnd struct {
	step int
	at   time.Time
}

// sortedEntry is an entry with what its place depends on. Clocks of several machines may
// differ, so the time of an entry is no less than that of the entry of its name before it.
type sortedEntry struct {
	Entry
	at   time.Time
	rank int
}

// The order of entries with the same time.
const (
	specRank = iota
	startRank
	evaluationRank
	moveRank
	stepRank
)

// NewReader returns a reader of a run.
func NewReader(s Store, run string) *Reader {
	return &Reader{store: s, run: run, moves: map[string]moves{}}
}

// News is what a reader found.
type News struct {
	// Entries are those that the position lacks, by the time of their records.
	Entries []Entry
	// Run is the run's row.
	Run record.Run
	// Ended is true if the run has ended, so that nothing but moves by hand will follow.
	Ended bool
}

// Read returns the entries on record that a position lacks.
func (r *Reader) Read(ctx context.Context, has Position) (News, error) {
	run, err := r.store.Run(ctx, r.run) // first: what an ended run did is on record then
	if err != nil {
		return News{}, fmt.Errorf("read run %s: %w", r.run, err)
	}
	news := News{Run: run, Ended: run.Status != record.Running}
	if err := r.readPolicies(run); err != nil {
		return News{}, err
	}
	var found []sortedEntry
	if !has.Spec {
		text, err := SpecOf(run)
		if err != nil {
			return News{}, err
		}
		found = append(found, sortedEntry{Entry{Time: run.Created, Spec: text}, run.Created, specRank})
	}
	if !has.Start {
		if found, err = r.addStart(ctx, found); err != nil {
			return News{}, err
		}
	}
	others, err := r.readTables(ctx, has)
	if err != nil {
		return News{}, err
	}
	found = append(append(found, others...), r.stepEntries(has.Step)...)
	slices.SortStableFunc(found, func(a, b sortedEntry) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.rank, b.rank))
	})
	for _, e := range found {
		news.Entries = append(news.Entries, e.Entry)
	}
	return news, nil
}

// readPolicies finds out whose promoted versions move: of each of several policies if the spec
// promotes each alone, else of the run.
func (r *Reader) readPolicies(run record.Run) error {
	if r.policies != nil {
		return nil
	}
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return fmt.Errorf("decode the spec of run %s: %w", run.Name, err)
	}
	r.policies = []string{model.DefaultPolicy, record.PromptsPolicy}
	if s.Promotion.Alone {
		r.policies = s.PolicyNames()
	}
	return nil
}

// readTables reads the new steps into r, and returns the new evaluations and moves. A step
// that is recorded while other tables are read belongs before what these have since. So
// all are read again until there is no new step.
func (r *Reader) readTables(ctx context.Context, has Position) ([]sortedEntry, error) {
	if _, err := r.readSteps(ctx); err != nil {
		return nil, err
	}
	for {
		evaluations, err := r.evaluations(ctx, has)
		if err != nil {
			return nil, err
		}
		found := evaluations
		for _, policy := range r.policies {
			moved, err := r.readMoves(ctx, policy)
			if err != nil {
				return nil, err
			}
			found = append(found, moved[min(has.Moves[policy], len(moved)):]...)
		}
		if more, err := r.readSteps(ctx); err != nil || more == 0 {
			return found, err
		}
	}
}

// SpecOf returns the spec of a run as JSON, without secrets.
func SpecOf(run record.Run) (json.RawMessage, error) {
	s, err := spec.Stored(run.Spec)
	if err != nil {
		return nil, fmt.Errorf("decode the spec of run %s: %w", run.Name, err)
	}
	text, err := json.MarshalIndent(s.WithoutSecrets(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the spec of run %s: %w", run.Name, err)
	}
	return text, nil
}

// addStart adds the metrics of version 0, of which only a warm start has any.
func (r *Reader) addStart(ctx context.Context, found []sortedEntry) ([]sortedEntry, error) {
	if r.start == nil {
		v, err := r.store.Version(ctx, model.VersionID{Run: r.run, Policy: model.DefaultPolicy})
		switch {
		case errors.Is(err, record.ErrNotFound):
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("read version 0 of run %s: %w", r.run, err)
		}
		r.start = &v
	}
	if len(r.start.Metrics) == 0 {
		return found, nil
	}
	return append(found, sortedEntry{Entry{Time: r.start.Created, Values: values(r.start.Metrics)}, r.start.Created, startRank}), nil
}

// readSteps reads the steps that were recorded since they were last read, and returns how
// many these are.
func (r *Reader) readSteps(ctx context.Context) (int, error) {
	after := 0
	if n := len(r.ends); n > 0 {
		after = r.ends[n-1].step
	}
	steps, err := r.store.StepsAfter(ctx, r.run, model.DefaultPolicy, after)
	if err != nil {
		return 0, fmt.Errorf("read the steps of run %s: %w", r.run, err)
	}
	for _, s := range steps {
		at := s.At
		if n := len(r.ends); n > 0 && at.Before(r.ends[n-1].at) {
			at = r.ends[n-1].at
		}
		r.ends = append(r.ends, stepEnd{s.Step, at})
	}
	r.pending = append(r.pending, steps...)
	return len(steps), nil
}

// stepEntries returns the entries of the steps that were read and come after a step.
func (r *Reader) stepEntries(after int) []sortedEntry {
	r.pending = slices.DeleteFunc(r.pending, func(s record.Step) bool { return s.Step <= after })
	out := make([]sortedEntry, 0, len(r.pending))
	for _, s := range r.pending {
		e := Entry{Step: s.Step, Time: s.At, Values: values(s.Metrics)}
		if reward, ok := s.Reward(); ok {
			e.Values = append([]Value{{RewardName, reward}}, e.Values...)
		}
		i, _ := slices.BinarySearchFunc(r.ends, s.Step, func(end stepEnd, step int) int { return cmp.Compare(end.step, step) })
		out = append(out, sortedEntry{e, r.ends[i].at, stepRank})
	}
	return out
}

// evaluations returns the entries of the evaluations that a position lacks. The store
// returns those of a split by version.
func (r *Reader) evaluations(ctx context.Context, has Position) ([]sortedEntry, error) {
	all, err := r.store.Evaluations(ctx, r.run)
	if err != nil {
		return nil, fmt.Errorf("read the evaluations of run %s: %w", r.run, err)
	}
	var out []sortedEntry
	latest := map[string]time.Time{} // by name
	for _, e := range all {
		name := evaluationPrefix + ofPolicy(e.Policy) + string(e.Kind)
		if e.At.After(latest[name]) {
			latest[name] = e.At
		}
		if has.hasEvaluation(e) {
			continue
		}
		entry := Entry{Step: e.Version, Time: e.At}
		if e.Greedy != nil {
			entry.Values = append(entry.Values, Value{name + "/greedy", *e.Greedy})
		}
		entry.Values = append(entry.Values, Value{name + meanSuffix, e.Mean}, Value{name + "/std_error", e.StdError})
		out = append(out, sortedEntry{entry, latest[name], evaluationRank})
	}
	return out, nil
}

// readMoves returns the entries of all moves of the promoted version of a policy.
func (r *Reader) readMoves(ctx context.Context, policy string) ([]sortedEntry, error) {
	known := r.moves[policy]
	newest, err := r.store.Promoted(ctx, r.run, policy)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read what run %s promoted: %w", r.run, err)
	case newest.DecisionID == known.last:
		return known.entries, nil
	}
	all, err := r.store.Promotions(ctx, r.run, policy)
	if err != nil {
		return nil, fmt.Errorf("read what run %s promoted: %w", r.run, err)
	}
	step, latest := -1, time.Time{}
	known = moves{}
	for _, p := range all {
		if p.At.After(latest) {
			latest = p.At
		}
		text := moveText(p)
		if now := max(step, r.stepOf(p)); now > step {
			step = now
		} else { // a tracker may show only the last text of a step
			text = known.entries[len(known.entries)-1].Texts[0].Text + "\n\n" + text
		}
		prefix := promotedPrefix + ofPolicy(policy)
		known.last = p.DecisionID
		known.entries = append(known.entries, sortedEntry{Entry{
			Step: step, Time: p.At,
			Values: []Value{{prefix + versionName, float64(p.Version)}},
			Texts:  []Text{{prefix + reasonName, text}},
		}, latest, moveRank})
	}
	r.moves[policy] = known
	return known.entries, nil
}

// stepOf returns the step at which the promoted version moved: the last step before, or
// the step that made the version, which is recorded after its promotion.
func (r *Reader) stepOf(p record.Promotion) int {
	n, _ := slices.BinarySearchFunc(r.ends, p.At, func(end stepEnd, at time.Time) int {
		if end.at.After(at) {
			return 1
		}
		return -1
	})
	if n == 0 {
		return p.Version
	}
	return max(p.Version, r.ends[n-1].step)
}

// moveText says which version is promoted, by what and why.
func moveText(p record.Promotion) string {
	text := fmt.Sprintf("version %d (%s", p.Version, cmp.Or(p.Source, record.SourceGate))
	if p.By != "" {
		text += " by " + p.By
	}
	text += ")"
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}
