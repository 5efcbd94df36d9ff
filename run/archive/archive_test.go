package archive_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/archive"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

const queue = "archive"

// family is the input of Parent: the ids of the children that end with it, and of one that
// waits for a signal. Again says that it continues as a new execution before.
type family struct {
	Children []string
	Waiting  string
	Again    bool
}

// Parent is the workflow of a run.
func Parent(ctx workflow.Context, in family) error {
	if in.Again {
		in.Again = false
		return workflow.NewContinueAsNewError(ctx, Parent, in)
	}
	for _, id := range in.Children {
		ctx := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: id})
		if err := workflow.ExecuteChildWorkflow(ctx, Child, false).Get(ctx, nil); err != nil {
			return err
		}
	}
	if in.Waiting == "" {
		return nil
	}
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{WorkflowID: in.Waiting, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON})
	return workflow.ExecuteChildWorkflow(ctx, Child, true).GetChildWorkflowExecution().Get(ctx, nil)
}

// Child is a workflow below that of a run.
func Child(ctx workflow.Context, waits bool) error {
	if waits {
		workflow.GetSignalChannel(ctx, "go on").Receive(ctx, nil)
	}
	return nil
}

// fleet is a Temporal server with a worker, a store and blobs.
type fleet struct {
	t      *testing.T
	dir    string
	server *devserver.Server
	client client.Client
	store  *store.Store
	blobs  *blob.Store
}

func start(t *testing.T) *fleet {
	t.Helper()
	server, err := devserver.Start(t.Context(), devserver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	f := openAt(t, t.TempDir(), server.Address())
	f.server = server
	require.NoError(t, f.store.Migrate(t.Context()))
	w := worker.New(f.client, queue, worker.Options{})
	w.RegisterWorkflow(Parent)
	w.RegisterWorkflow(Child)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return f
}

// openAt opens the store and the blobs in a directory, and connects to a server.
func openAt(t *testing.T, dir, address string) *fleet {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{HostPort: address, Logger: nothing{}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	s, err := store.Open(t.Context(), filepath.Join(dir, "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	b, err := blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	return &fleet{t: t, dir: dir, client: c, store: s, blobs: b}
}

// nothing is a logger that drops what it is told.
type nothing struct{}

func (nothing) Debug(string, ...any) {}
func (nothing) Info(string, ...any)  {}
func (nothing) Warn(string, ...any)  {}
func (nothing) Error(string, ...any) {}

func (f *fleet) temporal() archive.Temporal {
	return archive.Temporal{Client: f.client, Namespace: devserver.DefaultNamespace}
}

func (f *fleet) archiver() *archive.Archiver {
	return &archive.Archiver{Temporal: f.temporal(), Store: f.store, Blobs: f.blobs, Log: zap.NewNop(), Settled: time.Nanosecond}
}

// run executes the workflow of a run and records the run as completed. It returns when
// Temporal lists all that has closed.
func (f *fleet) run(name string, in family) record.Run {
	f.t.Helper()
	return f.runSince(name, in, time.Now())
}

func (f *fleet) runSince(name string, in family, created time.Time) record.Run {
	f.t.Helper()
	ctx := f.t.Context()
	started, err := f.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: name, TaskQueue: queue}, Parent, in)
	require.NoError(f.t, err)
	_, _, err = f.store.CreateRun(ctx, record.Run{Name: name, WorkflowID: name, ExecutionID: started.GetRunID(), Spec: []byte("{}"), Created: created})
	require.NoError(f.t, err)
	require.NoError(f.t, started.Get(ctx, nil))
	closed := 1 + len(in.Children)
	if in.Again {
		closed++
	}
	f.listed(name, closed)
	return f.finish(name)
}

// listed waits until Temporal lists a number of closed workflows of a run.
func (f *fleet) listed(name string, closed int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		all, err := f.histories().Executions(f.t.Context(), record.Run{Name: name, WorkflowID: name})
		return err == nil && closed == len(slices.DeleteFunc(all, func(e *workflowpb.WorkflowExecutionInfo) bool { return e.CloseTime == nil }))
	}, time.Minute, 20*time.Millisecond)
}

// finish records a run as completed, once more if it is already.
func (f *fleet) finish(name string) record.Run {
	f.t.Helper()
	require.NoError(f.t, f.store.FinishRun(f.t.Context(), name, record.Completed, nil))
	r, err := f.store.Run(f.t.Context(), name)
	require.NoError(f.t, err)
	return r
}

func (f *fleet) histories() runstate.Histories {
	return runstate.Histories{Client: f.client, Namespace: devserver.DefaultNamespace}
}

// execution names an execution.
func execution(id, runID string) *common.WorkflowExecution {
	return &common.WorkflowExecution{WorkflowId: id, RunId: runID}
}

// endedBefore sets the end of a run to a time ago.
func (f *fleet) endedBefore(run record.Run, ago time.Duration) {
	f.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(f.dir, "store.db"))
	require.NoError(f.t, err)
	_, err = db.ExecContext(f.t.Context(), `UPDATE runs SET finished = $2 WHERE name = $1`, run.Name, time.Now().Add(-ago).UnixNano())
	require.NoError(f.t, errors.Join(err, db.Close()))
}

// skipDeletion skips a test in short mode that waits for Temporal to delete what has just closed.
func skipDeletion(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("Temporal takes half a minute to delete a history")
	}
}

// forgetIn deletes what Temporal has of some workflows of a run.
func (f *fleet) forgetIn(run record.Run, ids ...string) {
	f.t.Helper()
	_, err := f.histories().Delete(f.t.Context(), run, func(id string) bool { return slices.Contains(ids, id) })
	require.NoError(f.t, err)
}

// archived lets an archiver do a round, and returns the manifest of a run's archive.
func (f *fleet) archived(a *archive.Archiver, name string) archive.Manifest {
	f.t.Helper()
	require.NoError(f.t, a.Step(f.t.Context()))
	stored, err := f.store.Archive(f.t.Context(), name)
	require.NoError(f.t, err)
	r, err := archive.Open(f.t.Context(), f.blobs, stored)
	require.NoError(f.t, err)
	require.NoError(f.t, r.Close())
	return r.Manifest
}

// ids returns the ids of the workflows whose histories are there, and of those that are missing.
func ids(m archive.Manifest) (there, missing []string) {
	for _, h := range m.Histories {
		there = append(there, h.WorkflowID)
	}
	for _, one := range m.Missing {
		missing = append(missing, one.WorkflowID)
	}
	return there, missing
}

func TestAnArchiveWithAllHistoriesIsComplete(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.run("demo", family{Children: []string{"demo/a", "demo/b"}, Again: true})
	m := f.archived(f.archiver(), "demo")
	there, missing := ids(m)
	require.Equal(t, []string{"demo", "demo", "demo/a", "demo/b"}, there)
	require.Empty(t, missing)
	require.True(t, m.Complete)
	require.Empty(t, m.Gaps)
}

func TestAnArchiveIsNotCompleteIfAPersonHasDeletedAHistory(t *testing.T) {
	t.Parallel()
	skipDeletion(t)
	f := start(t)
	for name, gone := range map[string]string{"child": "child/a", "parent": "parent"} {
		run := f.run(name, family{Children: []string{name + "/a", name + "/b"}})
		f.forgetIn(run, gone)
		m := f.archived(f.archiver(), name)
		_, missing := ids(m)
		require.Equal(t, []string{gone}, missing)
		require.False(t, m.Missing[0].Open)
		require.Equal(t, []archive.Gap{archive.GapDeleted}, m.Gaps)
		require.False(t, m.Complete)
	}
}

func TestAnArchiveIsNotCompleteIfTheFirstExecutionOfARunIsDeleted(t *testing.T) {
	t.Parallel()
	skipDeletion(t)
	f := start(t)
	run := f.run("demo", family{Children: []string{"demo/a"}, Again: true})
	_, err := f.client.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: devserver.DefaultNamespace, WorkflowExecution: execution("demo", run.ExecutionID),
	})
	require.NoError(t, err)
	f.listed("demo", 2)
	m := f.archived(f.archiver(), "demo")
	require.Equal(t, []archive.Missing{{Execution: archive.Execution{WorkflowID: "demo", RunID: run.ExecutionID}}}, m.Missing)
	require.False(t, m.Complete)
}

func TestAnArchiveSaysWhichWorkflowsHadNotClosed(t *testing.T) {
	t.Parallel()
	f := start(t)
	run := f.run("demo", family{Children: []string{"demo/a"}, Waiting: "demo/late"})
	a := f.archiver()
	require.NoError(t, a.Step(t.Context()))
	_, err := f.store.Archive(t.Context(), "demo")
	require.ErrorIs(t, err, record.ErrNotFound, "it waits for a third of the retention")

	// Much later the workflow is still under way.
	f.endedBefore(run, 40*24*time.Hour)
	m := f.archived(f.archiver(), "demo")
	there, missing := ids(m)
	require.Equal(t, []string{"demo", "demo/a"}, there)
	require.Equal(t, []string{"demo/late"}, missing)
	require.True(t, m.Missing[0].Open)
	require.Equal(t, []archive.Gap{archive.GapOpen}, m.Gaps)
	require.False(t, m.Complete)

	// It closes, and the run ends anew: the next archive has it.
	require.NoError(t, f.client.SignalWorkflow(t.Context(), "demo/late", "", "go on", nil))
	f.listed("demo", 3)
	f.finish("demo")
	m = f.archived(f.archiver(), "demo")
	there, missing = ids(m)
	require.Equal(t, []string{"demo", "demo/a", "demo/late"}, there)
	require.Empty(t, missing)
	require.True(t, m.Complete)
}

func TestWhatIsUnderWayIsLeftForTheNextArchiveOfARunUnderWay(t *testing.T) {
	t.Parallel()
	skipDeletion(t)
	f := start(t)
	run := f.runSince("demo", family{Children: []string{"demo/a"}, Waiting: "demo/late"}, time.Now().Add(-40*24*time.Hour))
	require.NoError(t, f.store.ReopenRun(t.Context(), run))
	m := f.archived(f.archiver(), "demo")
	there, missing := ids(m)
	require.Equal(t, []string{"demo", "demo/a"}, there)
	require.Equal(t, []string{"demo/late"}, missing)
	require.True(t, m.Complete, "the next archive has it")

	// A person deletes it before that.
	require.NoError(t, f.client.SignalWorkflow(t.Context(), "demo/late", "", "go on", nil))
	f.listed("demo", 3)
	f.forgetIn(run, "demo/late", "demo")
	f.finish("demo")
	m = f.archived(f.archiver(), "demo")
	there, missing = ids(m)
	require.Equal(t, []string{"demo", "demo/a"}, there, "from the archive before")
	require.Equal(t, []string{"demo/late"}, missing)
	require.Equal(t, []archive.Gap{archive.GapDeleted}, m.Gaps)
}

// unlisted is a server that does not list a workflow yet.
type unlisted struct {
	client.Client
	id string
}

func (u unlisted) ListWorkflow(ctx context.Context, in *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	out, err := u.Client.ListWorkflow(ctx, in)
	if err == nil {
		out.Executions = slices.DeleteFunc(out.Executions, func(e *workflowpb.WorkflowExecutionInfo) bool { return e.Execution.WorkflowId == u.id })
	}
	return out, err
}

func TestAWorkflowThatTemporalDoesNotListYetIsArchived(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.run("demo", family{Children: []string{"demo/a", "demo/b"}})
	a := f.archiver()
	a.Client = unlisted{f.client, "demo/a"}
	m := f.archived(a, "demo")
	there, _ := ids(m)
	require.Equal(t, []string{"demo", "demo/a", "demo/b"}, there)
	require.True(t, m.Complete)
}

func TestAnArchiveOfALongRunIsNotComplete(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.runSince("demo", family{}, time.Now().Add(-100*24*time.Hour))
	m := f.archived(f.archiver(), "demo")
	require.Equal(t, []archive.Gap{archive.GapRetention}, m.Gaps)
	require.False(t, m.Complete)
	f.finish("demo")
	m = f.archived(f.archiver(), "demo")
	require.Equal(t, []archive.Gap{archive.GapRetention}, m.Gaps, "what the archive before lacks, this one lacks, too")
}

func TestAnArchiveWithoutTheOneBeforeIsNotComplete(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.run("demo", family{})
	require.True(t, f.archived(f.archiver(), "demo").Complete)
	a, err := f.store.Archive(t.Context(), "demo")
	require.NoError(t, err)
	require.NoError(t, f.blobs.Remove(t.Context(), a.Digest))
	f.finish("demo")
	m := f.archived(f.archiver(), "demo")
	require.Equal(t, []archive.Gap{archive.GapArchive}, m.Gaps)
	require.False(t, m.Complete)
}

// forgetTask puts on record that a task was removed from a run, as it is when that has ended.
func (f *fleet) forgetTask(run record.Run) {
	f.t.Helper()
	begun, _, err := f.store.BeginForgetting(f.t.Context(), run, record.Forgotten{Run: run.Name, What: record.ForgottenTask, Task: "one", By: "me"})
	require.NoError(f.t, err)
	require.NoError(f.t, f.store.EndForgetting(f.t.Context(), begun))
}

func TestAnArchiveIsNotCompleteAfterATaskWasForgotten(t *testing.T) {
	t.Parallel()
	f := start(t)
	run := f.run("demo", family{Children: []string{"demo/a"}})
	f.forgetTask(run)
	m := f.archived(f.archiver(), "demo")
	require.Equal(t, []archive.Gap{archive.GapTask}, m.Gaps)
	require.False(t, m.Complete)
}

func TestHistoriesAreNotExtractedAcrossARemoval(t *testing.T) {
	t.Parallel()
	f := start(t)
	run := f.run("demo", family{Children: []string{"demo/a"}})
	dir := filepath.Join(t.TempDir(), "out")
	dial := func() (archive.Temporal, error) {
		f.forgetTask(run)
		return f.temporal(), nil
	}
	_, err := archive.Extract(t.Context(), f.store, f.blobs, run, dial, dir)
	require.ErrorIs(t, err, archive.ErrChanged)
	require.NoDirExists(t, dir)
	done, err := archive.Extract(t.Context(), f.store, f.blobs, run, func() (archive.Temporal, error) { return f.temporal(), nil }, dir)
	require.NoError(t, err)
	require.Equal(t, []archive.Gap{archive.GapTask}, done.Gaps)
}

func TestAnExtractionOfARunUnderWaySaysWhatIsOpen(t *testing.T) {
	t.Parallel()
	f := start(t)
	run := f.run("demo", family{Children: []string{"demo/a"}, Waiting: "demo/late"})
	dir := filepath.Join(t.TempDir(), "out")
	done, err := archive.Extract(t.Context(), f.store, f.blobs, run, func() (archive.Temporal, error) { return f.temporal(), nil }, dir)
	require.NoError(t, err)
	require.Equal(t, archive.FromTemporal, done.From)
	require.Equal(t, 1, done.Open)
	there, missing := ids(done.Manifest)
	require.Equal(t, []string{"demo", "demo/a", "demo/late"}, there)
	require.Empty(t, missing)
	text, err := os.ReadFile(filepath.Join(dir, archive.ManifestFile))
	require.NoError(t, err)
	var m archive.Manifest
	require.NoError(t, json.Unmarshal(text, &m))
	require.Equal(t, done.Manifest, m)
}

func TestARunThatTemporalDoesNotListYetIsExtracted(t *testing.T) {
	t.Parallel()
	f := start(t)
	run := f.run("demo", family{Waiting: "demo/late"})
	temporal := f.temporal()
	temporal.Client = unlisted{f.client, "demo"}
	done, err := archive.Extract(t.Context(), f.store, f.blobs, run, func() (archive.Temporal, error) { return temporal, nil }, filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	there, _ := ids(done.Manifest)
	require.Equal(t, []string{"demo", "demo/late"}, there)
}

func TestAnExtractionWithoutTemporalSaysThatThereIsNoArchive(t *testing.T) {
	t.Parallel()
	f := start(t)
	run := f.run("demo", family{})
	away := errors.New("it is away")
	dir := filepath.Join(t.TempDir(), "out")
	_, err := archive.Extract(t.Context(), f.store, f.blobs, run, func() (archive.Temporal, error) { return archive.Temporal{}, away }, dir)
	require.ErrorIs(t, err, away)
	require.True(t, strings.Contains(err.Error(), "no archive of its end yet"), err)
	require.NoDirExists(t, dir)
}
