package progress_test

import (
	"bytes"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
)

// showTwoSteps reports two steps to a display as a poller does: some things twice.
func showTwoSteps(d *progress.Display) {
	d.Println("a run of", 2, "steps")
	for i, mean := range []float64{0.25, 0.5} {
		d.Step(i+1, 2)
		d.Step(i+1, 2)
		d.Phase("rollouts")
		for done := range 9 {
			d.Rollouts(done, 8)
		}
		d.Reward(i+1, mean)
		d.Reward(i+1, mean)
		d.Phase("training")
	}
	d.Phase("evaluation")
	d.Evaluation(16, 16)
	d.Println("done")
}

func TestWithoutATerminalEachFinishedStepIsALine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := progress.New(&out, false)
	showTwoSteps(d)
	d.Close()
	require.Equal(t, `a run of 2 steps
step 1/2  reward 0.250  rollouts 8
step 2/2  reward 0.500  rollouts 8
done
`, out.String())
}

func TestRewardsAloneAreEnough(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := progress.New(&out, false)
	d.Reward(7, -1)
	d.Reward(6, 1) // too late
	d.Close()
	d.Close()
	d.Println("after")
	require.Equal(t, "step 7  reward -1.000\nafter\n", out.String())
}

func TestAnyGoroutineMayTell(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, isTTY := range []bool{false, true} {
		var out bytes.Buffer
		d := progress.New(&out, isTTY)
		var callers errgroup.Group
		for range 4 {
			callers.Go(func() error { showTwoSteps(d); return nil })
		}
		require.NoError(t, callers.Wait())
		d.Reward(3, math.NaN())
		d.Close()
		showTwoSteps(d) // late callers do no harm
		require.Contains(t, out.String(), "done")
	}
}

func TestAStepThatTakesLongIsSaidNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := progress.New(&out, false)
		d.Step(3, 20)
		for i := range 8 { // 70 s
			d.Rollouts(8*i, 64)
			d.Pace("54 tokens/s, next version in 41s")
			time.Sleep(10 * time.Second)
		}
		d.Phase("update")
		d.Pace("")
		d.Reward(3, 0.5)
		d.Close()
		require.Equal(t, `step 3/20  rollouts 24/64  54 tokens/s, next version in 41s
step 3/20  rollouts 48/64  54 tokens/s, next version in 41s
step 3/20  reward 0.500  rollouts 64
`, out.String())
	})
}

func TestWhatComesBeforeTheFirstStepIsSaidNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := progress.New(&out, false)
		d.Step(0, 2)
		for i := range 8 { // 80 s
			d.WarmStart(i, 100)
			time.Sleep(10 * time.Second)
		}
		for i := range 4 {
			d.Evaluation(i, 48)
			time.Sleep(10 * time.Second)
		}
		d.Close()
		require.Equal(t, "warm start 3/100\nwarm start 6/100\nevaluation 1/48\n", out.String())
	})
}
