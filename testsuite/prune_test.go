package testsuite_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// The environment of a worker that prunes and kills itself: the directory of the stack, the
// address of Temporal, and how many writes of a removal it passes before.
const pruneVariable, pruneTemporalVariable, pruneWritesVariable = "FULGURITE_TEST_PRUNE", "FULGURITE_TEST_PRUNE_TEMPORAL", "FULGURITE_TEST_PRUNE_WRITES"

// writes counts the writes of a removal, and kills this process after the last. Below zero it
// does not.
type writes struct{ left int }

func (w *writes) pass() {
	if w.left--; w.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal has come
	}
}

type prunedStore struct {
	*store.Store
	*writes
}

func (s prunedStore) MarkCollected(ctx context.Context, run, policy string, choose func(record.Holdings) []int) error {
	err := s.Store.MarkCollected(ctx, run, policy, choose)
	s.pass()
	return err
}

func (s prunedStore) RemoveBodies(ctx context.Context, run string) error {
	err := s.Store.RemoveBodies(ctx, run)
	s.pass()
	return err
}

type prunedBlobs struct {
	*blob.Store
	*writes
}

func (b prunedBlobs) Remove(ctx context.Context, digest string) error {
	err := b.Store.Remove(ctx, digest)
	b.pass()
	return err
}

// directoryPruner prunes the runs of a stack's directory.
type directoryPruner struct{ *retention.Forgetter }

func (p directoryPruner) Prune(ctx context.Context, rule retention.PruneRule, by string, dryRun bool) (retention.PruneReport, error) {
	return p.Forgetter.Prune(ctx, rule, by, dryRun, func(retention.PruneReport) error { return nil })
}

// pruningWorker starts a worker that prunes the runs of a stack's directory, until it is stopped.
func pruningWorker(t *testing.T, c client.Client, dir string, left int) (worker.Worker, *store.Store) {
	t.Helper()
	s, err := openStore(t.Context(), dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b, err := blob.Open(stack.Layout(dir).Blobs())
	require.NoError(t, err)
	s.Files = b
	w := &writes{left}
	pruner := directoryPruner{&retention.Forgetter{Store: prunedStore{s, w}, Blobs: prunedBlobs{b, w}}}
	out := workers.Training(c, &activities.Coordinator{Pruner: pruner}, workers.Tuning{})
	require.NoError(t, out.Start())
	return out, s
}

// A worker is killed twice in the middle of a PruneWorkflow. Compared are its result, and what it
// leaves in the store and among the blobs, with those of one that nobody disturbs.
func TestAPruneWorkflowWhoseWorkersAreKilledEndsLikeAnyOther(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if dir := os.Getenv(pruneVariable); dir != "" {
		left, err := strconv.Atoi(os.Getenv(pruneWritesVariable))
		require.NoError(t, err)
		c, err := client.DialContext(ctx, client.Options{HostPort: os.Getenv(pruneTemporalVariable)})
		require.NoError(t, err)
		pruningWorker(t, c, dir, left)
		select {} // until it kills itself
	}
	skipShort(t, "trains, and waits for heartbeats")
	dir, undisturbed := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	st := start(ctx, t, dir)
	for seed, name := range []string{"one", "two"} {
		s := small(5)
		s.Seed = uint64(seed) + 1 // equal runs would keep each other's files
		mustTrain(ctx, t, st, name, s)
	}
	require.NoError(t, st.Close())
	require.NoError(t, os.CopyFS(undisturbed, os.DirFS(dir)))
	server, err := devserver.Start(ctx, devserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	c, err := server.Client(ctx)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	begin := func(id string) client.WorkflowRun {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: workflows.QueueTraining}, workflows.TypePrune,
			activities.PruneInput{Rule: retention.PruneRule{Runs: "*", Weights: true, Keep: spec.Keep{Last: 1}, Records: true}, By: "ada"})
		require.NoError(t, err)
		return run
	}
	end := func(run client.WorkflowRun, dir string) (out activities.PruneResult, left map[string]any) {
		w, s := pruningWorker(t, c, dir, -1)
		require.NoError(t, run.Get(ctx, &out))
		w.Stop()
		left = map[string]any{}
		for _, name := range []string{"one", "two"} {
			left[name], err = s.RowsOfRun(ctx, name)
			require.NoError(t, err)
		}
		left["files"] = filesBelow(t, stack.Layout(dir).Blobs())
		return out, left
	}
	want, wantLeft := end(begin("undisturbed"), undisturbed)
	require.Equal(t, 2, want.Runs)
	require.Greater(t, want.Files, 2)

	disturbed := begin("disturbed")
	for _, left := range []int{2, 5} { // in the midst of the files of the first run, and later
		limited, cancel := context.WithTimeout(ctx, 5*time.Minute) // it never ends by itself
		p := exec.CommandContext(limited, os.Args[0], "-test.run", "^"+t.Name()+"$")
		p.Env = append(os.Environ(), pruneVariable+"="+dir, pruneTemporalVariable+"="+server.Address(), fmt.Sprint(pruneWritesVariable, "=", left))
		out, err := p.CombinedOutput()
		late := limited.Err()
		cancel()
		require.NoError(t, late, "it made fewer writes: %s", out)
		require.Error(t, err)
		status, ok := p.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok && status.Signal() == syscall.SIGKILL, "%s", out)
	}
	got, gotLeft := end(disturbed, dir)
	require.Equal(t, want, got)
	require.Empty(t, cmp.Diff(wantLeft, gotLeft))
}

// filesBelow returns the paths of the files below a directory.
func filesBelow(t *testing.T, dir string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			path, err = filepath.Rel(dir, path)
			paths = append(paths, path)
		}
		return err
	}))
	return paths
}
