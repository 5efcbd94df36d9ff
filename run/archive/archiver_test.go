package archive_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// interrupted is a store in which something happens right before an archive is put on record.
type interrupted struct {
	*store.Store
	before func(ctx context.Context) error
}

func (s interrupted) PutArchive(ctx context.Context, a, before record.Archive, removedTasks int, publish func() error) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	return s.Store.PutArchive(ctx, a, before, removedTasks, publish)
}

// written counts the archives that are written.
type written struct {
	*blob.Store
	n atomic.Int64
}

func (w *written) PutRecorded(ctx context.Context, r io.Reader, record func(digest string, publish func() error) error) (string, error) {
	w.n.Add(1)
	return w.Store.PutRecorded(ctx, r, record)
}

func TestOneArchiverAtATimeWorksOnARun(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.run("demo", family{Children: []string{"demo/a"}})
	first, second, blobs := f.archiver(), f.archiver(), &written{Store: f.blobs}
	first.Lease, second.Lease, second.Blobs = 4*time.Second, 4*time.Second, blobs
	reached, goOn := make(chan struct{}), make(chan struct{})
	first.Store = interrupted{f.store, func(context.Context) error { close(reached); <-goOn; return nil }}
	ended := make(chan error, 1)
	go func() { ended <- first.Step(t.Context()) }()
	<-reached
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // a lease that is not renewed is over by then
		require.NoError(t, second.Step(t.Context()))
		require.Zero(t, blobs.n.Load())
	}
	f.run("other", family{})
	f.archived(second, "other")
	require.Equal(t, int64(1), blobs.n.Load(), "another run is not held up")

	close(goOn)
	require.NoError(t, <-ended)
	_, err := f.store.Archive(t.Context(), "demo")
	require.NoError(t, err)
	leases, err := f.store.Leases(t.Context(), record.Archiver)
	require.NoError(t, err)
	require.Empty(t, leases, "a lease ends with the work")
}

// It listed the run before the other one had archived it.
func TestAnArchiverThatGetsTheLeaseLateWritesNothing(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.run("demo", family{})
	late, blobs := f.archiver(), &written{Store: f.blobs}
	late.Blobs = blobs
	late.Store = slow{f.store, func() { f.archived(f.archiver(), "demo") }}
	require.NoError(t, late.Step(t.Context()))
	require.Zero(t, blobs.n.Load())
}

// slow is the store of an archiver that is slow to ask for a lease.
type slow struct {
	*store.Store
	meanwhile func()
}

func (s slow) AcquireFreeLease(ctx context.Context, l record.Lease, ttl time.Duration) (record.Lease, error) {
	s.meanwhile()
	return s.Store.AcquireFreeLease(ctx, l, ttl)
}

func TestAnArchiverThatLosesItsLeaseEnds(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.run("demo", family{})
	a := f.archiver()
	a.Lease = 3 * time.Second // it is renewed after a third of that
	var cause error
	a.Store = interrupted{f.store, func(ctx context.Context) error {
		// Another process got it while this one did not run.
		_, err := f.store.AcquireLease(t.Context(), record.Lease{Role: record.Archiver, Name: "demo"}, time.Hour, false)
		require.NoError(t, err)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return ctx.Err()
	}}
	require.NoError(t, a.Step(t.Context()), "the other process does it")
	require.ErrorIs(t, cause, record.ErrLeaseLost)
	leases, err := f.store.Leases(t.Context(), record.Archiver)
	require.NoError(t, err)
	require.Len(t, leases, 1, "the lease of the other process stands")
	_, err = f.store.Archive(t.Context(), "demo")
	require.ErrorIs(t, err, record.ErrNotFound)
}

var namedFile = regexp.MustCompile(`^[0-9a-f]{64}$`)

// files returns the digests of all blobs.
func (f *fleet) files() (digests []string) {
	f.t.Helper()
	require.NoError(f.t, filepath.WalkDir(f.blobs.Directory(), func(path string, _ fs.DirEntry, err error) error {
		if name := filepath.Base(path); err == nil && namedFile.MatchString(name) {
			digests = append(digests, "sha256:"+name)
		}
		return err
	}))
	return digests
}

// The archiver may be killed right after this: it does nothing any more.
func TestNoFileIsLeftOfARunThatIsForgottenWhileItIsArchived(t *testing.T) {
	t.Parallel()
	skipDeletion(t)
	f := start(t)
	f.run("demo", family{Children: []string{"demo/a"}})
	a := f.archiver()
	forgotten := false
	a.Store = noted{f.store, func() {
		g := &retention.Forgetter{Store: f.store, Blobs: f.blobs, Histories: f.histories()}
		_, err := g.ForgetRun(t.Context(), "demo", "me", "")
		require.NoError(t, err)
		require.Empty(t, f.files())
		forgotten = true
	}}
	a.Blobs = kept{f.blobs}
	require.NoError(t, a.Step(t.Context()))
	require.True(t, forgotten)
	require.Empty(t, f.files())
}

// noted is a store in which something happens right after a file was noted.
type noted struct {
	*store.Store
	then func()
}

func (s noted) NoteArchive(ctx context.Context, run, digest string) error {
	err := s.Store.NoteArchive(ctx, run, digest)
	s.then()
	return err
}

// kept has the blobs of an archiver that removes nothing any more.
type kept struct{ *blob.Store }

func (kept) Remove(context.Context, string) error { return nil }

// The environment of a process that archives and kills itself: the directory, the address of
// Temporal, and how many moments it passes before.
const envDir, envAddress, envMoments = "FULGURITE_TEST_ARCHIVE", "FULGURITE_TEST_ARCHIVE_TEMPORAL", "FULGURITE_TEST_ARCHIVE_MOMENTS"

// moments counts the moments before and after writes, and kills this process at the last.
type moments struct{ left int }

func (m *moments) pass() {
	if m.left--; m.left < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal has come
	}
}

// killedStore and killedBlobs pass moments before and after each write of an archiver.
type killedStore struct {
	*store.Store
	*moments
}

func (s killedStore) AcquireFreeLease(ctx context.Context, l record.Lease, ttl time.Duration) (record.Lease, error) {
	taken, err := s.Store.AcquireFreeLease(ctx, l, ttl)
	s.pass()
	return taken, err
}

func (s killedStore) NoteArchive(ctx context.Context, run, digest string) error {
	s.pass()
	err := s.Store.NoteArchive(ctx, run, digest)
	s.pass()
	return err
}

func (s killedStore) PutArchive(ctx context.Context, a, before record.Archive, removedTasks int, publish func() error) error {
	err := s.Store.PutArchive(ctx, a, before, removedTasks, func() error {
		s.pass()
		err := publish()
		s.pass()
		return err
	})
	s.pass()
	return err
}

func (s killedStore) DropArchive(ctx context.Context, run, digest string, remove func() error) error {
	err := s.Store.DropArchive(ctx, run, digest, func() error {
		s.pass()
		err := remove()
		s.pass()
		return err
	})
	s.pass()
	return err
}

const shortLease = time.Second

// archiveAndDie archives in this process, which is killed at a moment.
func archiveAndDie(t *testing.T, dir string) {
	t.Helper()
	left, err := strconv.Atoi(os.Getenv(envMoments))
	require.NoError(t, err)
	f := openAt(t, dir, os.Getenv(envAddress))
	a := f.archiver()
	a.Store, a.Lease = killedStore{f.store, &moments{left}}, shortLease
	require.NoError(t, a.Step(t.Context()))
}

// An archiver is killed before and after each of its writes, while it replaces an archive.
// Another one then does its work, and no file is left that neither a row nor a note names.
func TestAnArchiverThatIsKilledAtAnyWriteIsReplacedAndLeavesNoFile(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(envDir); dir != "" {
		archiveAndDie(t, dir)
		return
	}
	if testing.Short() {
		t.Skip("it starts a process for each write")
	}
	f := start(t)
	ctx := t.Context()
	f.run("demo", family{Children: []string{"demo/a", "demo/b"}})
	f.archived(f.archiver(), "demo")
	kills := 0
	for ended := false; !ended; kills++ {
		// Another history makes another archive than the one before.
		id := fmt.Sprint("demo/more-", kills)
		f.below("demo", id)
		run := f.finish("demo")
		c := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+t.Name()+"$")
		c.Env = append(os.Environ(), envDir+"="+f.dir, envAddress+"="+f.server.Address(), fmt.Sprint(envMoments, "=", kills))
		out, err := c.CombinedOutput()
		if err == nil {
			ended = true
		} else {
			require.NotNil(t, c.ProcessState, "%s", out)
			status, ok := c.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, ok && status.Signal() == syscall.SIGKILL, "%s", out)
		}
		a := f.archiver()
		a.Lease = shortLease
		require.Eventually(t, func() bool { // also if the other has died after all of its work
			leases, err := f.store.Leases(ctx, record.Archiver)
			return err == nil && len(leases) == 0
		}, time.Minute, 20*time.Millisecond)
		var stored record.Archive
		require.Eventually(t, func() bool {
			require.NoError(t, a.Step(ctx))
			stored, err = f.store.Archive(ctx, "demo")
			return err == nil && stored.Finished.Equal(run.Finished)
		}, time.Minute, 20*time.Millisecond, "after %d moments", kills)
		there, _ := ids(f.archived(a, "demo"))
		require.Contains(t, there, id)
		require.Contains(t, there, "demo/a")

		var found []string
		_, err = f.store.CollectAbandoned(ctx, time.Now().Add(time.Hour), nil, func(abandoned, _, _ []string) ([]string, error) {
			found = abandoned
			return nil, nil
		})
		require.NoError(t, err)
		require.Subset(t, append(found, stored.Digest), f.files(), "after %d moments", kills)
		collector := &retention.Collector{Store: f.store, Blobs: f.blobs, Settled: time.Nanosecond}
		require.NoError(t, collector.Collect(ctx, "demo"))
		require.Equal(t, []string{stored.Digest}, f.files(), "a collection takes the rest")
	}
	require.Equal(t, 9, kills-1, "a lease, a note, a name, a row, a removal and its row")
}

// below executes the workflow of a run once more, with a child.
func (f *fleet) below(run, id string) {
	f.t.Helper()
	started, err := f.client.ExecuteWorkflow(f.t.Context(), client.StartWorkflowOptions{ID: run, TaskQueue: queue}, Parent, family{Children: []string{id}})
	require.NoError(f.t, err)
	require.NoError(f.t, started.Get(f.t.Context(), nil))
	require.Eventually(f.t, func() bool {
		all, err := f.histories().Executions(f.t.Context(), record.Run{Name: run, WorkflowID: run})
		closed := 0
		for _, e := range all {
			if e.CloseTime != nil && (e.Execution.WorkflowId == id || e.Execution.RunId == started.GetRunID()) {
				closed++
			}
		}
		return err == nil && closed == 2
	}, time.Minute, 20*time.Millisecond)
}
