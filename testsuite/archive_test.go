package testsuite_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/archive"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// archivesOn holds a claim on a stack with each kind of store.
func archivesOn(t *testing.T, claim func(t *testing.T, st *stack.Stack)) {
	t.Helper()
	for name, url := range map[string]func(*testing.T) string{"sqlite": func(*testing.T) string { return "" }, "postgres": func(t *testing.T) string { t.Helper(); return pgtest.URL(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			skipShort(t, "starts a Temporal server")
			st, err := stack.Start(t.Context(), stack.Options{
				Archive: 24 * time.Hour, // the test archives by itself
				Dir:     t.TempDir(), Store: url(t), Agents: agent.Registry{"calculator": calculate}, Log: zap.NewNop(), Reconcile: 100 * time.Millisecond,
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, st.Close()) })
			claim(t, st)
		})
	}
}

func temporalOf(st *stack.Stack) archive.Temporal {
	return archive.Temporal{Client: st.Client, Namespace: st.Namespace()}
}

func archiverOf(st *stack.Stack) *archive.Archiver {
	return &archive.Archiver{Temporal: temporalOf(st), Store: st.Store, Blobs: st.Blobs, Log: zap.NewNop(), Settled: time.Nanosecond}
}

// archived lets archivers work until the run has an archive of its present end.
func archived(ctx context.Context, t *testing.T, st *stack.Stack, name string, archivers ...*archive.Archiver) (a record.Archive) {
	t.Helper()
	run, err := st.Store.Run(ctx, name)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var all errgroup.Group
		for _, one := range archivers {
			all.Go(func() error { return one.Step(ctx) })
		}
		require.NoError(t, all.Wait())
		a, err = st.Store.Archive(ctx, name)
		return err == nil && a.Finished.Equal(run.Finished)
	}, time.Minute, 20*time.Millisecond)
	return a
}

// noTemporal fails if an extraction asks for Temporal.
func noTemporal() (archive.Temporal, error) {
	return archive.Temporal{}, errors.New("Temporal was asked")
}

// deleteHistories removes all that Temporal has of a run.
func deleteHistories(ctx context.Context, t *testing.T, st *stack.Stack, run record.Run) {
	t.Helper()
	_, err := runstate.Histories{Client: st.Client, Namespace: st.Namespace()}.Delete(ctx, run, func(string) bool { return true })
	require.NoError(t, err)
}

// replayAll replays the histories in a directory.
func replayAll(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, archive.ManifestFile))
	require.NoError(t, err)
	var m archive.Manifest
	require.NoError(t, json.Unmarshal(text, &m))
	types := map[string]int{}
	for _, h := range m.Histories {
		data, err := os.ReadFile(filepath.Join(dir, h.File))
		require.NoError(t, err)
		replayer := worker.NewWorkflowReplayer()
		workers.Workflows(replayer)
		events, err := client.HistoryFromJSON(bytes.NewReader(data), client.HistoryJSONOptions{})
		require.NoError(t, err)
		require.Len(t, events.Events, int(h.Events))
		require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(log.NewStructuredLogger(slog.New(slog.DiscardHandler)), events, worker.ReplayWorkflowHistoryOptions{
			OriginalExecution: workflow.Execution{ID: h.WorkflowID, RunID: h.RunID},
		}))
		types[h.Type]++
		require.NotNil(t, h.Closed)
	}
	require.Positive(t, types["TrainingWorkflow"])
	require.Positive(t, types["RolloutWorkflow"])
}

func TestArchivedHistoriesReplayAfterTemporalHasDeletedThem(t *testing.T) {
	t.Parallel()
	archivesOn(t, func(t *testing.T, st *stack.Stack) {
		ctx := t.Context()
		s := small(2)
		s.Model.WarmStart = nil
		_, err := train(ctx, st, "demo", s)
		require.NoError(t, err)
		run, err := st.Store.Run(ctx, "demo")
		require.NoError(t, err)

		// Before there is an archive, the same comes from Temporal.
		early := filepath.Join(t.TempDir(), "early")
		require.Eventually(t, func() bool { // until Temporal lists the end of the run
			require.NoError(t, os.RemoveAll(early))
			from, err := archive.Extract(ctx, st.Store, st.Blobs, run, func() (archive.Temporal, error) { return temporalOf(st), nil }, early)
			require.NoError(t, err)
			require.Equal(t, archive.FromTemporal, from.From)
			return !slices.ContainsFunc(from.Histories, func(h archive.History) bool { return h.Closed == nil })
		}, time.Minute, 20*time.Millisecond)
		replayAll(t, early)

		a := archived(ctx, t, st, "demo", archiverOf(st), archiverOf(st))
		size, err := st.Blobs.Size(a.Digest)
		require.NoError(t, err)
		require.Equal(t, size, a.Bytes)
		deleteHistories(ctx, t, st, run)
		late := filepath.Join(t.TempDir(), "late")
		from, err := archive.Extract(ctx, st.Store, st.Blobs, run, noTemporal, late)
		require.NoError(t, err)
		require.Equal(t, archive.FromArchive, from.From)
		require.True(t, from.Complete)
		require.Len(t, from.Histories, a.Histories)
		replayAll(t, late)
		require.Empty(t, cmp.Diff(contents(t, early), contents(t, late)))

		_, err = archive.Extract(ctx, st.Store, st.Blobs, run, noTemporal, late)
		require.ErrorIs(t, err, archive.ErrNotEmpty)
		again, err := st.Store.UnarchivedRuns(ctx, time.Now(), time.Time{})
		require.NoError(t, err)
		require.Empty(t, again, "an archived run is not read again, although Temporal has nothing of it")
	})
}

// contents returns the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(data)
	}
	return out
}

func TestARunWhoseHistoriesAreGoneIsNotedOnce(t *testing.T) {
	t.Parallel()
	archivesOn(t, func(t *testing.T, st *stack.Stack) {
		ctx := t.Context()
		s := small(1)
		s.Model.WarmStart = nil
		_, err := train(ctx, st, "demo", s)
		require.NoError(t, err)
		run, err := st.Store.Run(ctx, "demo")
		require.NoError(t, err)
		deleteHistories(ctx, t, st, run)
		a := archived(ctx, t, st, "demo", archiverOf(st))
		require.Empty(t, a.Digest)
		require.Zero(t, a.Histories)
		again, err := st.Store.UnarchivedRuns(ctx, time.Now(), time.Time{})
		require.NoError(t, err)
		require.Empty(t, again)
		dir := filepath.Join(t.TempDir(), "out")
		_, err = archive.Extract(ctx, st.Store, st.Blobs, run, noTemporal, dir)
		require.ErrorIs(t, err, archive.ErrNone)
		require.NoDirExists(t, dir)
	})
}

// A run that goes on keeps in its archive what Temporal has deleted since.
func TestTheArchiveOfARunThatWentOnHasWhatItHadBefore(t *testing.T) {
	t.Parallel()
	archivesOn(t, func(t *testing.T, st *stack.Stack) {
		ctx := t.Context()
		s := small(2)
		s.Model.WarmStart = nil
		_, err := train(ctx, st, "demo", s)
		require.NoError(t, err)
		run, err := st.Store.Run(ctx, "demo")
		require.NoError(t, err)
		before := archived(ctx, t, st, "demo", archiverOf(st))
		ids, _ := points(eventsOf(ctx, t, st.Client, "demo"))
		_, err = runstate.Histories{Client: st.Client, Namespace: st.Namespace()}.Delete(ctx, run, func(id string) bool { return strings.Contains(id, "/") })
		require.NoError(t, err)
		goOn := func() {
			before, err := st.Store.Run(ctx, "demo")
			require.NoError(t, err)
			_, err = reset(ctx, st.Client, "demo", firstExecution(ctx, t, st.Client, "demo"), ids[0])
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				now, err := st.Store.Run(ctx, "demo")
				return err == nil && now.Status == record.Completed && !now.Finished.Equal(before.Finished)
			}, time.Minute, 20*time.Millisecond)
		}
		goOn()
		after := archived(ctx, t, st, "demo", archiverOf(st))
		require.NotEqual(t, before.Digest, after.Digest)
		require.Greater(t, after.Histories, before.Histories)
		has, err := st.Blobs.Has(ctx, before.Digest)
		require.NoError(t, err)
		require.False(t, has, "the archive before is no longer needed")
		run, err = st.Store.Run(ctx, "demo")
		require.NoError(t, err)
		dir := t.TempDir()
		_, err = archive.Extract(ctx, st.Store, st.Blobs, run, noTemporal, dir)
		require.NoError(t, err)
		replayAll(t, dir)

		// If its file is gone, the next archive has what Temporal still has.
		require.NoError(t, st.Blobs.Remove(ctx, after.Digest))
		goOn()
		left := archived(ctx, t, st, "demo", archiverOf(st))
		require.NotEqual(t, after.Digest, left.Digest)
		require.Positive(t, left.Histories)
	})
}

func TestTheArchiveGoesWithAForgottenTaskAndWithTheRun(t *testing.T) {
	t.Parallel()
	skipShort(t, "starts a Temporal server")
	ctx := t.Context()
	st, err := stack.Start(ctx, stack.Options{Dir: t.TempDir(), Agents: agent.Registry{"calculator": calculate}, Log: zap.NewNop(), Reconcile: 100 * time.Millisecond, Archive: 24 * time.Hour})
	require.NoError(t, err)
	defer func() { require.NoError(t, st.Close()) }()
	const gone, kept = "zanzibar7931", "quokkas4410"
	plantedRun(ctx, t, st, "demo", "", gone, kept)
	before := archived(ctx, t, st, "demo", archiverOf(st))
	require.True(t, archiveHas(t, st, before, gone), "the agent's result is in the history of its rollout")
	f := &retention.Forgetter{Store: st.Store, Blobs: st.Blobs, Histories: runstate.Histories{Client: st.Client, Namespace: client.DefaultNamespace}}
	done, err := f.ForgetTask(ctx, "task-"+gone, "", "me", "asked to", false)
	require.NoError(t, err)
	require.Equal(t, before.Bytes, done.Runs[0].Archive)
	has, err := st.Blobs.Has(ctx, before.Digest)
	require.NoError(t, err)
	require.False(t, has)
	_, err = st.Store.Archive(ctx, "demo")
	require.ErrorIs(t, err, record.ErrNotFound)

	// What Temporal still has is archived again, without the task.
	after := archived(ctx, t, st, "demo", archiverOf(st))
	require.False(t, archiveHas(t, st, after, gone))
	require.True(t, archiveHas(t, st, after, kept))
	_, err = f.ForgetRun(ctx, "demo", "me", "")
	require.NoError(t, err)
	has, err = st.Blobs.Has(ctx, after.Digest)
	require.NoError(t, err)
	require.False(t, has)
	_, err = st.Store.Archive(ctx, "demo")
	require.ErrorIs(t, err, record.ErrNotFound)
}

// archiveHas reports whether a text is in an archive, also within the payloads of events,
// which JSON has in base64.
func archiveHas(t *testing.T, st *stack.Stack, a record.Archive, text string) bool {
	t.Helper()
	path, err := st.Blobs.Path(a.Digest)
	require.NoError(t, err)
	z, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, z.Close()) }()
	found := false
	for _, f := range z.File {
		r, err := f.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		if f.Name == archive.ManifestFile {
			continue
		}
		h, err := client.HistoryFromJSON(bytes.NewReader(data), client.HistoryJSONOptions{})
		require.NoError(t, err)
		binary, err := h.Marshal()
		require.NoError(t, err)
		found = found || bytes.Contains(binary, []byte(text))
	}
	return found
}
