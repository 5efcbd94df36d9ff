package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// watch looks at the store for whether anything goes on, and measures from a kill
// to the next piece of work that is kept.
type watch struct {
	db *checker.Database

	mu      sync.Mutex
	count   int64
	moved   time.Time // when count last grew
	waiting []*pause
	over    map[processes.Role][]time.Duration
}

// pause is a kill after which nothing has been seen yet. What had been kept
// before it is known only once the store has answered again.
type pause struct {
	role     processes.Role
	at       time.Time
	baseline int64
	based    bool
}

func newWatch(db *checker.Database) *watch {
	return &watch{db: db, moved: time.Now(), over: map[processes.Role][]time.Duration{}}
}

// Run looks ten times a second until ctx ends.
func (w *watch) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		w.step(ctx)
	}
}

func (w *watch) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	asked := time.Now()
	count, err := w.db.Progress(ctx)
	if err != nil {
		return // the store is away, as it is at times meant to be
	}
	w.see(asked, time.Now(), count)
}

// see takes a count that was asked for at one time and came at another.
func (w *watch) see(asked, came time.Time, count int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if count > w.count {
		w.count, w.moved = count, came
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(p *pause) bool {
		switch {
		case !p.based:
			if asked.After(p.at) {
				p.based, p.baseline = true, count
			}
		case count > p.baseline:
			w.over[p.role] = append(w.over[p.role], came.Sub(p.at))
			return true
		}
		return false
	})
}

// killed begins to measure.
func (w *watch) killed(role processes.Role, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, &pause{role: role, at: at})
}

// idle is how long nothing has happened.
func (w *watch) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.moved)
}

// recoveries are all times measured so far.
func (w *watch) recoveries() map[processes.Role][]time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[processes.Role][]time.Duration{}
	for role, times := range w.over {
		out[role] = slices.Sorted(slices.Values(times))
	}
	return out
}
