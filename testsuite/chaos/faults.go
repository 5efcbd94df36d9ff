package main

import (
	"context"
	"strings"
	"time"
)

const (
	// respite is how long a run may stand still before the next blow waits until it
	// has moved again: it is to be disturbed, not starved.
	respite = 20 * time.Second
	// ripe is how long a blow against a CPU worker waits for an agent that is in the
	// middle of its work, and ripeJudge for a judge that is.
	ripe, ripeJudge = 3 * time.Second, 10 * time.Second
)

// strike lets blows fall on the fleet until the run is complete or there were
// enough of them: no run gets so many that too few are left for the other courses.
func (s *suite) strike(ctx context.Context, name string, c course) error {
	share := (s.kills + len(s.courses) - 1) / len(s.courses)
	for before := s.struck.total; !s.enough(ctx) && (s.expectFailure || s.struck.total-before < share); {
		b := s.plan.next()
		over, err := s.until(ctx, name, func(waited time.Duration) bool {
			if waited < b.after || s.watch.idle() > respite {
				return false
			}
			switch {
			case !strings.HasPrefix(string(b.role), "cpu"):
				return true
			case c.judge:
				return waited > b.after+ripeJudge || s.fickle.Thinking()
			}
			return waited > b.after+ripe || s.midway(ctx, name)
		})
		if over || err != nil {
			return err
		}
		if b.hang > 0 {
			err = s.hang(ctx, name, b)
		} else {
			err = s.kill(ctx, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enough reports whether there were as many kills as asked for. Where a failure is
// expected it has to have had its occasion too, or three times as many.
func (s *suite) enough(ctx context.Context) bool {
	if s.struck.total < s.kills || !s.expectFailure || s.struck.total >= 3*s.kills {
		return s.struck.total >= s.kills
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := s.db.RecordedAgain(ctx)
	return err == nil && n > 0
}

func (s *suite) kill(ctx context.Context, b blow) error {
	s.struck.kills[b.role]++
	s.struck.total++
	s.say("kill %d of %d: %s", s.struck.total, s.kills, b.role)
	return s.keeper.kill(ctx, b.role, func() { s.watch.killed(b.role, time.Now()) })
}

// hang lets a process stand still, at the longest until the run is complete.
func (s *suite) hang(ctx context.Context, name string, b blow) error {
	s.struck.hangs[b.role]++
	s.say("%s hangs for %.1f s", b.role, b.hang.Seconds())
	resume, err := s.keeper.hang(b.role)
	if err != nil {
		return err
	}
	_, err = s.until(ctx, name, func(waited time.Duration) bool { return waited >= b.hang })
	if e := resume(); err == nil {
		err = e
	}
	return err
}

// until waits until something is so, or the run is over.
func (s *suite) until(ctx context.Context, name string, so func(waited time.Duration) bool) (over bool, err error) {
	began := time.Now()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !so(time.Since(began)) {
		if over, err = s.completed(ctx, name); over || err != nil {
			return over, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-tick.C:
		}
	}
	return false, nil
}

// midway reports whether an agent has got an answer and not yet finished.
func (s *suite) midway(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := s.db.Midway(ctx, name)
	return err == nil && n > 0
}
