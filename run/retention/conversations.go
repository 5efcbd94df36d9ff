package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// ConversationStore is the part of a store that has conversations.
type ConversationStore interface {
	Runs(ctx context.Context) ([]record.Run, error)
	RemoveConversations(ctx context.Context, run string, before time.Time) (removed int, err error)
}

// Expirer removes conversations with served versions that are older than
// traffic.retention_days of their run, counted from their last call. Batches that were made of
// them stay.
type Expirer struct {
	Store ConversationStore
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	Log *zap.Logger
}

// expiryInterval is how often an Expirer looks.
const expiryInterval = time.Hour

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
		s, err := spec.Stored(r.Spec)
		if err != nil || s.Traffic == nil || s.Traffic.RetentionDays == 0 {
			continue // a spec that can't be decoded is reported where the run is used
		}
		kept := time.Duration(s.Traffic.RetentionDays * 24 * float64(time.Hour))
		n, err := e.Store.RemoveConversations(ctx, r.Name, now().Add(-kept))
		removed += n
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}
