package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// mover moves the promoted pointer of one policy for a person: it promotes a version, goes
// back to an earlier one, pins a version, and unpins it. It is not the promotion rule, which
// decides between a candidate and the promoted version. It uses only the store, so it also
// works on runs that have ended; the promotions of a running run yield to a person's.
type mover struct {
	Store  Store
	Run    string
	Policy string
	By     string // in the form user@host
	// ID identifies a move, so that repeating it changes nothing; without ID each move is
	// new.
	ID string
	// Moves is how many moves the person had seen; a move is refused if there are others by
	// now. nil moves on from any.
	Moves *int
}

// Promote promotes a version that the run's own rule did not promote, or promoted
// earlier. The run's rule may move the pointer further from there.
func (m mover) Promote(ctx context.Context, version int, reason string) (record.Promotion, error) {
	history, last, err := m.history(ctx)
	if err != nil {
		return record.Promotion{}, err
	}
	if done, ok := m.made(history, record.SourcePromote); ok {
		return done, nil
	}
	if err := cmp.Or(m.unmoved(history), m.movable(last)); err != nil {
		return record.Promotion{}, err
	}
	if version == last.Version {
		return record.Promotion{}, Refuse("version %d of run %s is promoted already", version, m.Run)
	}
	return m.move(ctx, record.SourcePromote, version, history, reason)
}

// Rollback promotes version to instead of the promoted one; nil is the version that was
// promoted before.
func (m mover) Rollback(ctx context.Context, to *int, reason string) (record.Promotion, error) {
	history, last, err := m.history(ctx)
	if err != nil {
		return record.Promotion{}, err
	}
	if done, ok := m.made(history, record.SourceRollback); ok {
		return done, nil
	}
	if err := cmp.Or(m.unmoved(history), m.movable(last)); err != nil {
		return record.Promotion{}, err
	}
	var target int
	if to != nil {
		target = *to
	} else if before, ok := record.Before(history); ok {
		target = before
	} else {
		return record.Promotion{}, Refuse("no version of run %s was promoted before version %d: name the one to go back to", m.Run, last.Version)
	}
	if target == last.Version {
		return record.Promotion{}, Refuse("version %d of run %s is promoted already", target, m.Run)
	}
	return m.move(ctx, record.SourceRollback, target, history, reason)
}

// Pin promotes a version. The pointer does not move from there until Unpin.
func (m mover) Pin(ctx context.Context, version int, reason string) (record.Promotion, error) {
	history, last, err := m.history(ctx)
	if err != nil {
		return record.Promotion{}, err
	}
	if done, ok := m.made(history, record.SourcePin); ok {
		return done, nil
	}
	if err := m.unmoved(history); err != nil {
		return record.Promotion{}, err
	}
	if last.Pinned() && last.Version == version {
		return record.Promotion{}, Refuse("version %d of run %s is pinned already, by %s", version, m.Run, last.By)
	}
	return m.move(ctx, record.SourcePin, version, history, reason)
}

// Unpin allows a pinned pointer to move again. It does not move the pointer.
func (m mover) Unpin(ctx context.Context, reason string) (record.Promotion, error) {
	history, last, err := m.history(ctx)
	if err != nil {
		return record.Promotion{}, err
	}
	if done, ok := m.made(history, record.SourceUnpin); ok {
		return done, nil
	}
	if err := m.unmoved(history); err != nil {
		return record.Promotion{}, err
	}
	if !last.Pinned() {
		return record.Promotion{}, Refuse("no version of run %s is pinned", m.Run)
	}
	return m.move(ctx, record.SourceUnpin, last.Version, history, reason)
}

// history returns every move so far, and the last one. There is at least one.
func (m mover) history(ctx context.Context) ([]record.Promotion, record.Promotion, error) {
	if _, err := m.Store.Run(ctx, m.Run); err != nil {
		return nil, record.Promotion{}, err
	}
	all, err := m.Store.Promotions(ctx, m.Run, m.Policy)
	if err != nil {
		return nil, record.Promotion{}, err
	}
	if len(all) == 0 {
		return nil, record.Promotion{}, Refuse("no version of run %s is promoted yet", m.Run)
	}
	return all, all[len(all)-1], nil
}

// unmoved returns an error if the pointer has moved since the person saw it.
func (m mover) unmoved(history []record.Promotion) error {
	if m.Moves == nil || *m.Moves == len(history) {
		return nil
	}
	return Refuse("the pointer of run %s has moved meanwhile: version %d is promoted now", m.Run, history[len(history)-1].Version)
}

// movable returns an error if the pointer is pinned.
func (m mover) movable(last record.Promotion) error {
	if !last.Pinned() {
		return nil
	}
	return Refuse("version %d of run %s is pinned by %s: unpin it first, or pin another one", last.Version, m.Run, last.By)
}

// decision returns the key of a move: it contains the caller's ID or, without one, the
// next number of the history.
func (m mover) decision(source record.Source, history []record.Promotion) string {
	if m.ID != "" {
		return fmt.Sprintf("%s-%s", source, m.ID)
	}
	return fmt.Sprintf("%s-%d", source, len(history)+1)
}

// made returns the move that was already made under the ID.
func (m mover) made(history []record.Promotion, source record.Source) (record.Promotion, bool) {
	if m.ID == "" {
		return record.Promotion{}, false
	}
	for _, p := range history {
		if p.DecisionID == m.decision(source, history) {
			return p, true
		}
	}
	return record.Promotion{}, false
}

// move adds the next move to the history. It moves the pointer by compare-and-swap, so it
// fails if another move was made since the history was read.
func (m mover) move(ctx context.Context, source record.Source, version int, history []record.Promotion, reason string) (record.Promotion, error) {
	if source != record.SourceUnpin {
		if err := m.check(ctx, version); err != nil {
			return record.Promotion{}, err
		}
	}
	p := record.Promotion{
		Run: m.Run, Policy: m.Policy, DecisionID: m.decision(source, history), Version: version,
		Previous: history[len(history)-1].Version, Source: source, By: m.By, Reason: reason, At: time.Now(),
	}
	err := m.Store.Promote(ctx, p)
	if errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrPinned) {
		return p, Refuse("somebody else moved the pointer of run %s; see `%s` and try again (%s)", m.Run, m.listing(), err)
	}
	return p, err
}

// listing returns the command that lists the versions.
func (m mover) listing() string {
	if m.Policy == record.PromptsPolicy {
		return shell.Command("prompts", m.Run)
	}
	return shell.Command("versions", m.Run)
}

// find returns an error that wraps record.ErrNotFound if the policy has no such version.
func (m mover) find(ctx context.Context, version int) error {
	if m.Policy != record.PromptsPolicy {
		_, err := m.Store.Version(ctx, model.VersionID{Run: m.Run, Policy: m.Policy, Number: version})
		return err
	}
	if version == 0 { // the spec's own prompts, which are promoted before the search puts versions on record
		return nil
	}
	_, err := m.Store.PromptVersion(ctx, m.Run, version)
	return err
}

// check returns an error for a version that does not exist, or that has no evaluation on
// the gate split if the run has one.
func (m mover) check(ctx context.Context, version int) error {
	run, err := m.Store.Run(ctx, m.Run)
	if err != nil {
		return err
	}
	if err := m.find(ctx, version); errors.Is(err, record.ErrNotFound) {
		return Refuse("run %s has no version %d: `%s` lists them", m.Run, version, m.listing())
	} else if err != nil {
		return err
	}
	if run.Splits[record.Gate].Count == 0 {
		return nil
	}
	evaluations, err := m.Store.Evaluations(ctx, m.Run)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(evaluations, func(e record.Evaluation) bool {
		// All of several policies begin together, with a version 0 that is evaluated once.
		return (e.Policy == m.Policy || version == 0 && e.Policy == model.DefaultPolicy) && e.Kind == record.Gate && e.Version == version
	}) {
		return Refuse("version %d of run %s was not evaluated on the gate split: choose one that `%s` shows a gate reward for", version, m.Run, m.listing())
	}
	return nil
}
