package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// unnoticed is when a hang counts as not noticed.
const unnoticed = time.Minute

// detectHangs measures, in a run of its own for each role, how long it takes from
// SIGSTOP until somebody has noticed: until a rollout of a CPU worker is tried
// again, until nobody is sent to the gateway or the sampler any more, until
// Temporal takes the update from the GPU worker. PostgreSQL and Temporal have
// nobody beside them who could go on.
func (s *suite) detectHangs(ctx context.Context) error {
	calm, err := s.undisturbed(ctx, plain)
	if err != nil {
		return err
	}
	s.report.HangDetection = map[processes.Role]*float64{processes.Postgres: nil, processes.Temporal: nil}
	for _, role := range []processes.Role{processes.CPU1, processes.Gateway, processes.Sampler, processes.GPU} {
		name, began := "hang-"+string(role), time.Now()
		if err := s.begin(ctx, name, plain, ""); err != nil {
			return err
		}
		took, err := s.detectHang(ctx, name, role)
		if err != nil {
			return fmt.Errorf("hang of %s: %w", role, err)
		}
		if took > 0 {
			seconds := took.Seconds()
			s.report.HangDetection[role] = &seconds
			s.say("hang of %s noticed after %.1f s", role, seconds)
		}
		if err := s.await(ctx, name); err != nil {
			return err
		}
		s.took(name, began)
		if _, err := s.judge(ctx, name, calm); err != nil {
			return err
		}
	}
	return nil
}

// detectHang returns 0 if nobody noticed.
func (s *suite) detectHang(ctx context.Context, name string, role processes.Role) (time.Duration, error) {
	over, err := s.until(ctx, name, func(time.Duration) bool { return s.midway(ctx, name) })
	if over || err != nil {
		return 0, err
	}
	resume, err := s.keeper.hang(role)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	since := began
	over, err = s.until(ctx, name, func(waited time.Duration) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if waited > unnoticed {
			return true
		}
		switch role {
		case processes.GPU:
			var noticed bool
			since, noticed = s.updateTakenAway(ctx, name, since)
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
	if over || err != nil || time.Since(began) > unnoticed {
		return 0, err
	}
	return took, nil
}

// updateTakenAway reports whether the update that a worker was given has timed
// out, and since when it had it: nobody can notice a hang before there is work.
func (s *suite) updateTakenAway(ctx context.Context, name string, since time.Time) (time.Time, bool) {
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
