package stack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/run/runstate"
)

// markEvery is how often both databases get a new mark. A database that is restored from a
// backup is noticed if the backup was made before the last mark.
const markEvery = 2 * time.Second

// mend finds out whether one of the two databases is from an earlier time than the other,
// and lets the runs go on from what is on record. Both have a mark, which only grows and
// which the store gets first. So the store is never behind, unless it came from a backup,
// was copied earlier than the other one, or was lost.
func (s *Stack) mend(ctx context.Context) error {
	store, err := s.Store.Mark(ctx)
	if err != nil {
		return err
	}
	temporal, err := s.temporal.Mark(ctx)
	if err != nil {
		return err
	}
	m := runstate.Mender{Client: s.Client, Namespace: s.temporal.Namespace(), Store: s.Store}
	switch {
	case store < temporal:
		open, err := s.temporal.OpenWorkflows(ctx)
		if err != nil {
			return err
		}
		rewound, err := m.Rewind(ctx, open)
		s.say("the store is from an earlier time than Temporal's database: one of them was restored from a backup, copied while a stack ran, or lost", rewound)
		if err != nil {
			return fmt.Errorf("let runs go on from what is on record: %w", err)
		}
	case temporal < store-1: // by one where a stack was killed between the two
		restarted, err := m.Restart(ctx)
		s.say("Temporal's database is from an earlier time than the store: one of them was restored from a backup, or lost", restarted)
		if err != nil {
			return fmt.Errorf("let runs go on from what is on record: %w", err)
		}
	}
	mark := max(store, temporal)
	next := func(ctx context.Context) error {
		mark++
		if err := s.Store.SetMark(ctx, mark); err != nil {
			return err
		}
		return s.temporal.SetMark(ctx, mark)
	}
	if err := next(ctx); err != nil {
		return err
	}
	s.closers.Background(func(ctx context.Context) { s.keepMarks(ctx, next) })
	return nil
}

// say logs what was found and which runs go on from the record.
func (s *Stack) say(found string, runs []string) {
	if len(runs) > 0 {
		found += "; these go on from what is on record: " + strings.Join(runs, ", ")
	}
	s.Notices = append(s.Notices, found)
	s.log.Warn(found, zap.Strings("runs", runs))
}

// keepMarks gives both databases new marks, and a last one when ctx ends. A mark that
// can't be written, on a full disk for example, follows later.
func (s *Stack) keepMarks(ctx context.Context, next func(context.Context) error) {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), markEvery)
			defer cancel()
			if err := next(last); err != nil {
				s.log.Info("no last mark in the databases", zap.Error(err))
			}
			return
		case <-tick.C:
			if err := next(ctx); err != nil && ctx.Err() == nil {
				s.log.Info("no new mark in the databases", zap.Error(err))
			}
		}
	}
}
