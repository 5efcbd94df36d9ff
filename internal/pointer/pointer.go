package pointer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// ErrRefused is wrapped when a version can't be promoted, or is promoted already.
// Its text says what to do.
var ErrRefused = errors.New("refused")

// Store is what moves the pointer.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
	Evaluations(ctx context.Context, run string) ([]record.Evaluation, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	Promote(ctx context.Context, p record.Promotion) error
}

// Hand moves the pointer of one policy for a person.
type Hand struct {
	Store  Store
	Run    string
	Policy string
	By     string // as user@host
}

// Rollback promotes version to in place of the one that is promoted; nil is the
// version that was promoted before.
func (h Hand) Rollback(ctx context.Context, to *int, reason string) (record.Promotion, error) {
	history, last, err := h.history(ctx)
	if err != nil {
		return record.Promotion{}, err
	}
	if last.Pinned() {
		return record.Promotion{}, fmt.Errorf("%w: version %d of run %s is pinned by %s: unpin it first, or pin another one", ErrRefused, last.Version, h.Run, last.By)
	}
	var target int
	if to != nil {
		target = *to
	} else if before, ok := record.Before(history); ok {
		target = before
	} else {
		return record.Promotion{}, fmt.Errorf("%w: no version of run %s was promoted before version %d: say which with --to", ErrRefused, h.Run, last.Version)
	}
	if target == last.Version {
		return record.Promotion{}, fmt.Errorf("%w: version %d of run %s is promoted already", ErrRefused, target, h.Run)
	}
	return h.move(ctx, record.SourceRollback, target, history, reason)
}

// Pin promotes a version and holds the pointer there until Unpin.
func (h Hand) Pin(ctx context.Context, version int, reason string) (record.Promotion, error) {
	history, last, err := h.history(ctx)
	if err != nil {
		return record.Promotion{}, err
	}
	if last.Pinned() && last.Version == version {
		return record.Promotion{}, fmt.Errorf("%w: version %d of run %s is pinned already, by %s", ErrRefused, version, h.Run, last.By)
	}
	return h.move(ctx, record.SourcePin, version, history, reason)
}

// Unpin lets go of a pinned pointer, which stays where it is.
func (h Hand) Unpin(ctx context.Context, reason string) (record.Promotion, error) {
	history, last, err := h.history(ctx)
	if err != nil {
		return record.Promotion{}, err
	}
	if !last.Pinned() {
		return record.Promotion{}, fmt.Errorf("%w: no version of run %s is pinned", ErrRefused, h.Run)
	}
	return h.move(ctx, record.SourceUnpin, last.Version, history, reason)
}

// history is every move so far. There is at least one.
func (h Hand) history(ctx context.Context) ([]record.Promotion, record.Promotion, error) {
	if _, err := h.Store.Run(ctx, h.Run); err != nil {
		return nil, record.Promotion{}, err
	}
	all, err := h.Store.Promotions(ctx, h.Run, h.Policy)
	if err != nil {
		return nil, record.Promotion{}, err
	}
	if len(all) == 0 {
		return nil, record.Promotion{}, fmt.Errorf("%w: no version of run %s is promoted yet", ErrRefused, h.Run)
	}
	return all, all[len(all)-1], nil
}

// move makes the next entry of the history. Whoever made one since it was read is
// not overruled: the pointer is compared and swapped.
func (h Hand) move(ctx context.Context, source record.Source, version int, history []record.Promotion, reason string) (record.Promotion, error) {
	if source != record.SourceUnpin {
		if err := h.check(ctx, version); err != nil {
			return record.Promotion{}, err
		}
	}
	p := record.Promotion{
		Run: h.Run, Policy: h.Policy, DecisionID: fmt.Sprintf("%s-%d", source, len(history)+1), Version: version,
		Previous: history[len(history)-1].Version, Source: source, By: h.By, Reason: reason, At: time.Now(),
	}
	err := h.Store.Promote(ctx, p)
	if errors.Is(err, trace.ErrConflict) || errors.Is(err, record.ErrPinned) {
		return p, fmt.Errorf("%w: somebody moved the pointer of run %s meanwhile; look at `fulgurite versions %s` and try again (%w)", ErrRefused, h.Run, h.Run, err)
	}
	return p, err
}

// check refuses versions that are not there or that the gate has not seen. A run
// without a gate split has no evaluation to ask for.
func (h Hand) check(ctx context.Context, version int) error {
	run, err := h.Store.Run(ctx, h.Run)
	if err != nil {
		return err
	}
	if _, err := h.Store.Version(ctx, model.VersionID{Run: h.Run, Policy: h.Policy, Number: version}); errors.Is(err, trace.ErrNotFound) {
		return fmt.Errorf("%w: run %s has no version %d: `fulgurite versions %s` lists them", ErrRefused, h.Run, version, h.Run)
	} else if err != nil {
		return err
	}
	if run.Splits[trace.Gate].Count == 0 {
		return nil
	}
	evaluations, err := h.Store.Evaluations(ctx, h.Run)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(evaluations, func(e record.Evaluation) bool {
		return e.Policy == h.Policy && e.Kind == trace.Gate && e.Version == version
	}) {
		return fmt.Errorf("%w: version %d of run %s was not evaluated on the gate split: choose one that `fulgurite versions %s` shows a gate reward for", ErrRefused, version, h.Run, h.Run)
	}
	return nil
}
