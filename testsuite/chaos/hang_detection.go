package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// noticeLimit is the time after which a hang counts as not noticed.
const noticeLimit = time.Minute

// detectHangs measures, in a separate run for each role, the time from SIGSTOP until the
// hang is detected: until a rollout of a CPU worker is retried, until the lease of the
// gateway or the sampler expires, or until the GPU worker's update times out in Temporal.
// PostgreSQL and Temporal are left out, because they are single processes that no other
// process can replace.
func (s *suite) detectHangs(ctx context.Context) error {
	baseline, err := s.baseline(ctx, plain)
	if err != nil {
		return err
	}
	s.report.HangDetection = map[processes.Role]*float64{processes.Postgres: nil, processes.Temporal: nil}
	for _, role := range []processes.Role{processes.CPU1, processes.Gateway, processes.Sampler, processes.GPU} {
		name, began := "hang-"+string(role), time.Now()
		if err := s.startRun(ctx, name, plain, ""); err != nil {
			return err
		}
		took, err := s.detectHang(ctx, name, role)
		if err != nil {
			return fmt.Errorf("hang of %s: %w", role, err)
		}
		if took > 0 {
			seconds := took.Seconds()
			s.report.HangDetection[role] = &seconds
			s.logf("hang of %s noticed after %.1f s", role, seconds)
		}
		if err := s.awaitRun(ctx, name); err != nil {
			return err
		}
		s.recordDuration(name, began)
		if _, err := s.check(ctx, name, baseline); err != nil {
			return err
		}
	}
	return nil
}

// detectHang returns the time until the hang was detected, or 0 if it was not.
func (s *suite) detectHang(ctx context.Context, name string, role processes.Role) (time.Duration, error) {
	over, err := s.waitFor(ctx, name, func(time.Duration) bool { return s.agentMidway(ctx, name) })
	if over || err != nil {
		return 0, err
	}
	resume, err := s.faultInjector.hang(role)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	since := began
	over, err = s.waitFor(ctx, name, func(waited time.Duration) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if waited > noticeLimit {
			return true
		}
		switch role {
		case processes.GPU:
			var noticed bool
			since, noticed = s.updateTimedOut(ctx, name, since)
			return noticed
		case processes.CPU1:
			n, err := s.db.TriedAgain(ctx, name, began)
			return err == nil && n > 0
		default:
			n, err := s.db.Leases(ctx, string(role))
			return err == nil && n == 0
		}
	})
	took := time.Since(since)
	if e := resume(); err == nil {
		err = e
	}
	if over || err != nil || time.Since(began) > noticeLimit {
		return 0, err
	}
	return took, nil
}

// updateTimedOut reports whether the update of a worker has timed out, and when it
// started: a hang can't be noticed before there is work.
func (s *suite) updateTimedOut(ctx context.Context, name string, since time.Time) (time.Time, bool) {
	d, err := s.temporal.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return since, false
	}
	for _, a := range d.PendingActivities {
		if kind := a.ActivityType.GetName(); kind != "TrainStep" && kind != "InitPolicy" {
			continue
		}
		if a.LastFailure != nil {
			return since, true
		}
		if at := a.LastStartedTime; at != nil && at.AsTime().After(since) {
			since = at.AsTime()
		}
	}
	return since, false
}
