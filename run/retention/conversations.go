package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// ConversationStore is the part of a store that has conversations.
type ConversationStore interface {
	Runs(ctx context.Context) ([]record.Run, error)
	// RemoveEmptyConversations removes those that began before a time and have neither calls
	// nor feedback.
	RemoveEmptyConversations(ctx context.Context, run string, before time.Time) (removed int, err error)
	RemoveConversations(ctx context.Context, run string, before time.Time, keep []int) (removed int, err error)
	Segments(ctx context.Context, run, policy string) ([]record.Segment, error)
	LastStep(ctx context.Context, run, policy string) (record.Step, error)
}

// Expirer removes conversations with served versions that are older than
// traffic.retention_days of their run, counted from their last call. Batches that were made of
// them stay. It also removes conversations that have stayed without a call, whatever their run
// says: a gateway was killed before it recorded the first one.
type Expirer struct {
	Store ConversationStore
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	Log *zap.Logger
}

// expiryInterval is how often an Expirer looks.
const expiryInterval = time.Hour

// emptyAge is after what time a conversation without calls counts as abandoned. No first reply
// takes that long.
const emptyAge = 24 * time.Hour

// Run removes what is too old, at once and then every hour, until ctx ends. It logs errors and
// tries again.
func (e *Expirer) Run(ctx context.Context) {
	tick := time.NewTicker(expiryInterval)
	defer tick.Stop()
	for {
		if _, err := e.Step(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("conversations not removed", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Step removes what is too old now, and returns how many conversations it removed. Several
// processes may do so at once. A run that can't be read does not keep the others.
func (e *Expirer) Step(ctx context.Context) (removed int, err error) {
	now := time.Now
	if e.Now != nil {
		now = e.Now
	}
	runs, err := e.Store.Runs(ctx)
	if err != nil {
		return 0, fmt.Errorf("remove old conversations: %w", err)
	}
	var errs []error
	for _, r := range runs {
		n, err := e.Store.RemoveEmptyConversations(ctx, r.Name, now().Add(-emptyAge))
		removed += n
		errs = append(errs, err)
		s, err := spec.Stored(r.Spec)
		if err != nil || s.Traffic == nil || s.Traffic.RetentionDays == 0 {
			continue // a spec that can't be decoded is reported where the run is used
		}
		kept := time.Duration(s.Traffic.RetentionDays * 24 * float64(time.Hour))
		keep, err := e.needed(ctx, r.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n, err = e.Store.RemoveConversations(ctx, r.Name, now().Add(-kept), keep)
		removed += n
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// needed returns the conversations of which a step is being made: they are removed later.
func (e *Expirer) needed(ctx context.Context, run string) ([]int, error) {
	segments, err := e.Store.Segments(ctx, run, model.DefaultPolicy)
	if err != nil || len(segments) == 0 {
		return nil, err
	}
	last, err := e.Store.LastStep(ctx, run, model.DefaultPolicy)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return nil, err
	}
	var out []int
	for _, s := range segments {
		if s.Step > last.Step {
			out = append(out, s.Conversations...)
		}
	}
	return out, nil
}
