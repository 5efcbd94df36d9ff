package main

import (
	"context"
	"strings"
	"time"
)

const (
	// stallPause is for how long a run may make no progress before faults are held back
	// until it makes some. Otherwise the run might never finish.
	stallPause = 20 * time.Second
	// agentWait is how long a fault of a CPU worker waits for an agent in the middle of
	// its work, and judgeWait for a judge that is asked.
	agentWait, judgeWait = 3 * time.Second, 10 * time.Second
)

// injectFaults injects faults until the run is complete or has had its share: enough
// must be left for the other scenarios.
func (s *suite) injectFaults(ctx context.Context, name string, c scenario) error {
	share := (s.kills + len(s.scenarios) - 1) / len(s.scenarios)
	for before := s.injected.total; !s.enough(ctx) && (s.expectFailure || s.injected.total-before < share); {
		f := s.faultPlan.next()
		over, err := s.waitFor(ctx, name, func(waited time.Duration) bool {
			if waited < f.after || s.monitor.idle() > stallPause {
				return false
			}
			switch {
			case !strings.HasPrefix(string(f.role), "cpu"):
				return true
			case c.judge:
				return waited > f.after+judgeWait || s.judgeServer.Busy()
			}
			return waited > f.after+agentWait || s.agentMidway(ctx, name)
		})
		if over || err != nil {
			return err
		}
		if f.hang > 0 {
			err = s.hang(ctx, name, f)
		} else {
			err = s.kill(ctx, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enough reports whether there were as many kills as asked for. If a failure is
// expected, it must have shown itself too; the limit of the suite ends the search for it.
func (s *suite) enough(ctx context.Context) bool {
	if s.injected.total < s.kills || !s.expectFailure {
		return s.injected.total >= s.kills
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := s.db.RecordedAgain(ctx)
	return err == nil && n > 0
}

func (s *suite) kill(ctx context.Context, f fault) error {
	s.injected.kills[f.role]++
	s.injected.total++
	s.logf("kill %d of %d: %s", s.injected.total, s.kills, f.role)
	return s.faultInjector.kill(ctx, f.role, func() { s.monitor.killed(f.role, time.Now()) })
}

// hang suspends a process, at the longest until the run is complete.
func (s *suite) hang(ctx context.Context, name string, f fault) error {
	s.injected.hangs[f.role]++
	s.logf("%s hangs for %.1f s", f.role, f.hang.Seconds())
	resume, err := s.faultInjector.hang(f.role)
	if err != nil {
		return err
	}
	_, err = s.waitFor(ctx, name, func(waited time.Duration) bool { return waited >= f.hang })
	if e := resume(); err == nil {
		err = e
	}
	return err
}

// waitFor waits until a condition holds or the run is over.
func (s *suite) waitFor(ctx context.Context, name string, condition func(waited time.Duration) bool) (over bool, err error) {
	began := time.Now()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !condition(time.Since(began)) {
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

// agentMidway reports whether an agent has just got an answer and not yet finished.
func (s *suite) agentMidway(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := s.db.Midway(ctx, name, time.Now().Add(-s.think))
	return err == nil && n > 0
}
