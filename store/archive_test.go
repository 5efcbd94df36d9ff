package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func archiveOf(r record.Run, digest int) record.Archive {
	return record.Archive{Run: r.Name, Finished: r.Finished, Digest: fmt.Sprintf("sha256:%064x", digest), Bytes: 7, Histories: 2, Events: 30, Archived: time.Unix(100, 0).UTC()}
}

// putArchive notes the file of an archive, and puts the archive on record.
func putArchive(t *testing.T, s *store.Store, a, before record.Archive, removedTasks int) error {
	t.Helper()
	if a.Digest != "" {
		if err := s.NoteArchive(t.Context(), a.Run, a.Digest); err != nil {
			return err
		}
	}
	return s.PutArchive(t.Context(), a, before, removedTasks, func() error { return nil })
}

// never is the function by which a file gets its name that may not get it.
func never(t *testing.T) func() error {
	t.Helper()
	return func() error {
		t.Error("the file got its name")
		return nil
	}
}

// unarchived returns the names of the runs without an archive.
func unarchived(t *testing.T, s *store.Store, endedBefore, archivedBefore time.Time) (names []string) {
	t.Helper()
	runs, err := s.UnarchivedRuns(t.Context(), endedBefore, archivedBefore)
	require.NoError(t, err)
	for _, r := range runs {
		names = append(names, r.Name)
	}
	return names
}

func TestARunIsArchivedOnceForEachOfItsEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		_, err := s.Archive(ctx, "ended")
		require.ErrorIs(t, err, record.ErrNotFound)
		ended := endedRun(t, s, "ended")
		began := time.Now().Add(-time.Hour)
		_, _, err = s.CreateRun(ctx, record.Run{Name: "long", ExecutionID: "x", Created: began})
		require.NoError(t, err)
		require.Empty(t, unarchived(t, s, ended.Finished.Add(-1), time.Time{}))
		require.Equal(t, []string{"ended"}, unarchived(t, s, ended.Finished, began.Add(-time.Second)))
		require.Equal(t, []string{"long", "ended"}, unarchived(t, s, ended.Finished, time.Now()))

		first := archiveOf(ended, 1)
		require.NoError(t, putArchive(t, s, first, record.Archive{}, 0))
		stored, err := s.Archive(ctx, "ended")
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(first, stored))
		require.Empty(t, unarchived(t, s, time.Now(), time.Time{}))
		require.ErrorIs(t, putArchive(t, s, archiveOf(ended, 2), record.Archive{}, 0), record.ErrConflict, "another process was faster")

		long, err := s.Run(ctx, "long")
		require.NoError(t, err)
		of := archiveOf(long, 3)
		of.Archived = time.Now()
		require.NoError(t, putArchive(t, s, of, record.Archive{}, 0))
		require.Empty(t, unarchived(t, s, time.Now(), of.Archived.Add(-time.Second)))
		require.Equal(t, []string{"long"}, unarchived(t, s, time.Now(), time.Now()))

		// A run that goes on is archived after its next end.
		require.NoError(t, s.ReopenRun(ctx, ended))
		require.ErrorIs(t, putArchive(t, s, archiveOf(ended, 2), first, 0), record.ErrConflict, "it was read before the run went on")
		require.NoError(t, s.FinishRun(ctx, "ended", record.Failed, nil))
		require.Equal(t, []string{"ended"}, unarchived(t, s, time.Now(), time.Time{}))
		ended, err = s.Run(ctx, "ended")
		require.NoError(t, err)
		require.NoError(t, putArchive(t, s, archiveOf(ended, 2), first, 0))
		needed := map[string]string{}
		require.NoError(t, s.NeededFiles(ctx, func(f store.NeededFile) error { needed[f.Digest] = f.For; return nil }))
		require.Equal(t, map[string]string{
			archiveOf(ended, 2).Digest: "the archived histories of run ended", of.Digest: "the archived histories of run long",
		}, needed, "a backup has them")
	})
}

func TestNoArchiveIsRecordedAcrossARemoval(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		run := endedRun(t, s, "demo")
		begin := func(what record.ForgottenKind, task string) record.Forgotten {
			f, _, err := s.BeginForgetting(ctx, run, record.Forgotten{Run: "demo", What: what, Task: task, By: "me"})
			require.NoError(t, err)
			return f
		}
		count, err := s.RemovedTasks(ctx, "demo")
		require.NoError(t, err)
		require.Zero(t, count)
		f := begin(record.ForgottenTask, "one")
		require.Empty(t, unarchived(t, s, time.Now(), time.Time{}))
		require.ErrorIs(t, putArchive(t, s, archiveOf(run, 1), record.Archive{}, count), record.ErrConflict)
		require.ErrorIs(t, putArchive(t, s, archiveOf(run, 1), record.Archive{}, count+1), record.ErrConflict, "it has not ended")
		require.NoError(t, s.EndForgetting(ctx, f))
		require.ErrorIs(t, putArchive(t, s, archiveOf(run, 1), record.Archive{}, count), record.ErrConflict, "the histories were read before")
		require.Equal(t, []string{"demo"}, unarchived(t, s, time.Now(), time.Time{}))
		require.NoError(t, putArchive(t, s, archiveOf(run, 1), record.Archive{}, count+1))

		// An archive that is being removed is neither replaced nor needed.
		require.NoError(t, s.NoteArchive(ctx, "demo", archiveOf(run, 2).Digest))
		digests, err := s.BeginRemovingArchive(ctx, "demo")
		require.NoError(t, err)
		require.ElementsMatch(t, []string{archiveOf(run, 1).Digest, archiveOf(run, 2).Digest}, digests)
		require.Empty(t, unarchived(t, s, time.Now(), time.Time{}))
		require.ErrorIs(t, s.PutArchive(ctx, archiveOf(run, 3), archiveOf(run, 1), count+1, never(t)), record.ErrConflict)
		require.NoError(t, s.NeededFiles(ctx, func(f store.NeededFile) error { return errors.New(f.For) }))
		again, err := s.BeginRemovingArchive(ctx, "demo")
		require.NoError(t, err)
		require.ElementsMatch(t, digests, again, "an interrupted removal goes on")
		require.NoError(t, s.EndRemovingArchive(ctx, "demo"))
		require.Equal(t, []string{"demo"}, unarchived(t, s, time.Now(), time.Time{}))

		begin(record.ForgottenRun, "")
		require.ErrorIs(t, putArchive(t, s, archiveOf(run, 1), record.Archive{}, count+1), record.ErrForgotten)
		require.ErrorIs(t, s.NoteArchive(ctx, "demo", archiveOf(run, 1).Digest), record.ErrForgotten)
		require.Empty(t, unarchived(t, s, time.Now(), time.Time{}))
	})
}

func TestOnlyAnArchiveThatNothingNamesIsSwept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		run := endedRun(t, s, "demo")
		swept := func() (digests []string) {
			_, err := s.CollectAbandoned(ctx, time.Now().Add(time.Hour), nil, func(abandoned, _, _ []string) ([]string, error) {
				digests = abandoned
				return abandoned, nil
			})
			require.NoError(t, err)
			return digests
		}
		drop := func(digest string) (removed bool) {
			require.NoError(t, s.DropArchive(ctx, "demo", digest, func() error { removed = true; return nil }))
			return removed
		}
		first, second := archiveOf(run, 1), archiveOf(run, 2)
		for _, a := range []record.Archive{first, second} {
			require.NoError(t, s.NoteArchive(ctx, "demo", a.Digest))
		}
		require.NoError(t, putArchive(t, s, first, record.Archive{}, 0))
		require.NoError(t, s.NoteArchive(ctx, "demo", first.Digest)) // a second process has made the same
		require.Equal(t, []string{second.Digest}, swept(), "its writer was killed")
		require.False(t, drop(first.Digest))
		require.True(t, drop(second.Digest))

		// An archive that was replaced is noted again, until it is dropped.
		require.NoError(t, putArchive(t, s, second, first, 0))
		require.True(t, drop(first.Digest))
		require.Empty(t, swept())
		require.NoError(t, putArchive(t, s, first, second, 0))
		require.Equal(t, []string{second.Digest}, swept())
	})
}

func TestAFileHasItsNameOnlyOnceItsArchiveIsPutOnRecord(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		run := endedRun(t, s, "demo")
		a := archiveOf(run, 1)
		require.ErrorIs(t, s.PutArchive(ctx, a, record.Archive{}, 0, never(t)), record.ErrConflict, "nobody would find the file if it were not noted")
		require.NoError(t, s.NoteArchive(ctx, "demo", a.Digest))
		require.ErrorIs(t, s.PutArchive(ctx, a, record.Archive{}, 1, never(t)), record.ErrConflict, "a task was removed meanwhile")
		broken := errors.New("no space")
		require.ErrorIs(t, s.PutArchive(ctx, a, record.Archive{}, 0, func() error { return broken }), broken)
		_, err := s.Archive(ctx, "demo")
		require.ErrorIs(t, err, record.ErrNotFound)
		named := 0
		require.NoError(t, s.PutArchive(ctx, a, record.Archive{}, 0, func() error { named++; return nil }), "the note is still there")
		require.Positive(t, named)
		stored, err := s.Archive(ctx, "demo")
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(a, stored))

		none := archiveOf(endedRun(t, s, "gone"), 1)
		none.Digest = ""
		require.NoError(t, s.PutArchive(ctx, none, record.Archive{}, 0, nil), "without histories there is no file")

		forgotten := endedRun(t, s, "forgotten")
		require.NoError(t, s.NoteArchive(ctx, "forgotten", archiveOf(forgotten, 2).Digest))
		_, _, err = s.BeginForgetting(ctx, forgotten, record.Forgotten{Run: "forgotten", What: record.ForgottenRun, By: "me"})
		require.NoError(t, err)
		require.ErrorIs(t, s.PutArchive(ctx, archiveOf(forgotten, 2), record.Archive{}, 0, never(t)), record.ErrForgotten)
	})
}
