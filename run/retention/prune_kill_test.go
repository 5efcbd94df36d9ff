package retention_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// The environment of a process that prunes and kills itself: the directory, the run, and how
// many moments it passes before.
const envPrune, envPruneRun, envPruneMoments = "FULGURITE_TEST_PRUNE", "FULGURITE_TEST_PRUNE_RUN", "FULGURITE_TEST_PRUNE_MOMENTS"

// moments counts the moments before and after writes, and kills this process at the last.
type moments struct{ left int }

func (m *moments) pass() {
	if m.left--; m.left < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal has come
	}
}

// killedStore and killedBlobs pass moments before and after each write of a pruning.
type killedStore struct {
	*store.Store
	*moments
}

func (s killedStore) MarkCollected(ctx context.Context, run, policy string, choose func(record.Holdings) []int) error {
	s.pass()
	err := s.Store.MarkCollected(ctx, run, policy, choose)
	s.pass()
	return err
}

func (s killedStore) WhileUnchanged(ctx context.Context, at any, f func([]string) error) error {
	err := s.Store.WhileUnchanged(ctx, at, func(kept []string) error {
		s.pass()
		err := f(kept)
		s.pass()
		return err
	})
	s.pass()
	return err
}

func (s killedStore) BeginForgetting(ctx context.Context, r record.Run, f record.Forgotten) (record.Forgotten, bool, error) {
	s.pass()
	stored, created, err := s.Store.BeginForgetting(ctx, r, f)
	s.pass()
	return stored, created, err
}

func (s killedStore) RemoveBodies(ctx context.Context, run string) error {
	err := s.Store.RemoveBodies(ctx, run)
	s.pass()
	return err
}

func (s killedStore) EndForgetting(ctx context.Context, f record.Forgotten) error {
	err := s.Store.EndForgetting(ctx, f)
	s.pass()
	return err
}

type killedBlobs struct {
	*blob.Store
	*moments
}

func (b killedBlobs) Remove(ctx context.Context, digest string) error {
	b.pass()
	err := b.Store.Remove(ctx, digest)
	b.pass()
	return err
}

func pruneAll(run string) retention.PruneRule {
	return retention.PruneRule{Runs: run, Weights: true, Keep: spec.Keep{Last: 1}, Records: true}
}

// pruneAndDie prunes in this process, which is killed at a moment.
func pruneAndDie(t *testing.T, dir string) {
	t.Helper()
	left, err := strconv.Atoi(os.Getenv(envPruneMoments))
	require.NoError(t, err)
	r, m := openIn(t, dir), &moments{left}
	f := &retention.Forgetter{Store: killedStore{r.store, m}, Blobs: killedBlobs{r.blobs, m}}
	_, err = f.Prune(t.Context(), pruneAll(os.Getenv(envPruneRun)), "me", false, func(retention.PruneReport) error { return nil })
	require.NoError(t, err)
}

// A pruner is killed before and after each of its writes, while a run under way makes versions
// of the same weights and records calls.
func TestAPrunerThatIsKilledAtAnyWriteLosesNothingThatIsNeeded(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(envPrune); dir != "" {
		pruneAndDie(t, dir)
		return
	}
	if testing.Short() {
		t.Skip("it starts a process for each write")
	}
	dir := t.TempDir()
	r := openIn(t, dir)
	r.run("live", nil, 0)
	const newest, shared = 5, 2 // versions of each run that ends, and how many of them have weights that live makes, too
	var round, made, calls atomic.Int64
	stop := make(chan struct{})
	var fleet errgroup.Group
	fleet.Go(func() error { // the trainer
		for n := 1; ; n++ {
			for {
				err := r.put(r.version("live", n, uint64(1000*round.Load()+1+int64(n%shared))))
				if err == nil {
					break
				}
				if !errors.Is(err, store.ErrFileGone) && !errors.Is(err, record.ErrNotFound) {
					return err
				}
			}
			made.Store(int64(n))
			select {
			case <-stop:
				return nil
			default:
			}
		}
	})
	fleet.Go(func() error { // a gateway
		for task := 0; ; task++ {
			r.attempt("live", 1, task, fmt.Sprint("task ", task))
			calls.Store(int64(task) + 1)
			select {
			case <-stop:
				return nil
			default:
			}
		}
	})
	kills := 0
	for ended := false; !ended; kills++ {
		round.Store(int64(kills) + 1)
		name := fmt.Sprint("ended-", kills)
		r.run(name, nil, 0)
		for n := 1; n <= newest; n++ {
			r.putAgain(name, n, uint64(1000*(kills+1)+n))
		}
		a := r.attempt(name, 1, 0, "a")
		r.finish(name)

		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		c.Env = append(os.Environ(), envPrune+"="+dir, envPruneRun+"="+name, fmt.Sprint(envPruneMoments, "=", kills))
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil:
			ended = true
		case !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL:
			require.NoError(t, err, "%s", out)
		}
		require.Subset(t, r.loads(name, newest), []int{0, newest - 1, newest}, "after %d moments", kills)
		_, err = r.forgetter().Prune(t.Context(), pruneAll(name), "me", false, func(retention.PruneReport) error { return nil })
		require.NoError(t, err)
		kept := r.loads(name, newest)
		require.Subset(t, kept, []int{0, newest - 1, newest})
		require.NotContains(t, kept, newest-2, "nobody else needs it")
		_, err = r.store.Exchanges(t.Context(), a)
		require.ErrorIs(t, err, record.ErrForgotten)
		recorded, err := r.store.Calls(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, recorded, 1, "calls keep their tokens")
		again, err := r.forgetter().Prune(t.Context(), pruneAll(name), "me", true, func(retention.PruneReport) error { return nil })
		require.NoError(t, err)
		require.Empty(t, again.Runs, "all of it is removed")
	}
	close(stop)
	require.NoError(t, fleet.Wait())
	require.Greater(t, kills, 10)
	require.Len(t, r.loads("live", int(made.Load())), int(made.Load())+1)
	for task := range int(calls.Load()) {
		exchanges, err := r.store.Exchanges(t.Context(), record.Address{RolloutID: record.RolloutID{Run: "live", Kind: record.Train, Step: 1, Task: task}, Attempt: 1})
		require.NoError(t, err)
		require.Len(t, exchanges, 1)
	}
	t.Logf("%d prunings, %d versions and %d attempts beside them", kills, made.Load(), calls.Load())
}

// putAgain makes a version as often as it takes: a file that it shares with another version
// may be removed before it is on record.
func (r records) putAgain(run string, n int, seed uint64) {
	r.t.Helper()
	for {
		err := r.put(r.version(run, n, seed))
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrFileGone) {
			require.ErrorIs(r.t, err, record.ErrNotFound)
		}
	}
}
