package activities_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
)

// slowRuns waits for release before it answers for one run. It answers for other runs
// immediately.
type slowRuns struct {
	activities.Runs
	slow    string
	asked   chan struct{}
	release chan struct{}
}

func (s slowRuns) Run(ctx context.Context, name string) (record.Run, error) {
	if name == s.slow {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		select {
		case <-s.release:
		case <-ctx.Done():
			return record.Run{}, context.Cause(ctx)
		}
	}
	return s.Runs.Run(ctx, name)
}

func TestARunThatIsSlowToReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.prepare(w.spec())
	runner := w.runner("", answers("42"))
	slow := slowRuns{w.store, "slow", make(chan struct{}, 1), make(chan struct{})}
	runner.Runs = slow
	lostAgent := rollout(0, 0)
	lostAgent.Rollout.Run = "slow"
	ended := make(chan error, 2)
	go func() {
		_, err := do[activities.RunAgentResult](t, runner.RunAgent, lostAgent)
		ended <- err
	}()
	<-slow.asked
	// A caller that waits for the same run may give up.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := do[activities.RunAgentResult](t, runner.RunAgent, lostAgent, under(ctx))
		ended <- err
	}()
	_, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 0))
	require.NoError(t, err)
	cancel()
	require.ErrorContains(t, <-ended, "canceled")
	close(slow.release)
	require.ErrorContains(t, <-ended, `read run slow`)
}

// Temporal starts a later attempt on another worker if this one sends no heartbeat for
// ten seconds.
func TestRunAgentReportsThatItLivesWhileItsStoreIsSlow(t *testing.T) {
	w := newTestEnv(t)
	w.prepare(w.spec())
	synctest.Test(t, func(t *testing.T) {
		began, received := time.Now(), &heartbeats{}
		runner := &activities.Runner{Runs: slowRuns{w.store, "demo", make(chan struct{}, 1), make(chan struct{})}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err := do[activities.RunAgentResult](t, runner.RunAgent, rollout(0, 0), under(ctx), received.receive(began))
		require.ErrorContains(t, err, "deadline exceeded")
		require.Greater(t, received.latest().at, 2*time.Minute-throttle)
	})
}
