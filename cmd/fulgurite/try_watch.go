package main

import (
	"context"
	"time"

	"go.temporal.io/sdk/client"
)

const (
	// hopelessAfter is the attempt from which on an activity of a trial counts as one
	// that will not succeed: after four tries in seven seconds or more.
	hopelessAfter = 5
	// agentHopelessAfter is that of an agent's activities. What fails five times by
	// the agent's or its task's own fault comes to an end by itself.
	agentHopelessAfter = 6
	// watchEvery is how often a trial is looked at.
	watchEvery = 250 * time.Millisecond
)

// hopeless waits for an activity of the trial that is tried again and again, which in
// a run goes on until somebody steps in. It is nil once ctx is done.
func hopeless(ctx context.Context, c client.Client) *blockage {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		all, err := blockages(ctx, c, trialRun)
		if err != nil {
			continue // the trial's own end is what tells
		}
		for _, b := range all {
			if b.Attempt >= patienceWith(b.Activity) {
				return &b
			}
		}
	}
}

// patienceWith is the attempt from which on an activity is given up.
func patienceWith(activity string) int {
	switch activity {
	case "RunAgent", "BeginAttempt", "EndAttempt", "GradeRollout":
		return agentHopelessAfter
	}
	return hopelessAfter
}
