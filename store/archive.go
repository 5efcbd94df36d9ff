package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	selectArchive = `SELECT run, finished, digest, bytes, histories, events, archived, removed FROM archives WHERE run = $1`
	// The row of an archive is replaced only by whoever has read it.
	putArchive = `INSERT INTO archives (run, finished, digest, bytes, histories, events, archived, removed) VALUES ($1, $2, $3, $4, $5, $6, $7, 0)
ON CONFLICT (run) DO UPDATE SET finished = excluded.finished, digest = excluded.digest, bytes = excluded.bytes, histories = excluded.histories,
events = excluded.events, archived = excluded.archived WHERE archives.digest = $8 AND archives.finished = $9 AND archives.removed = 0`
	removeArchive = `UPDATE archives SET removed = $2 WHERE run = $1 AND removed = 0`
	deleteArchive = `DELETE FROM archives WHERE run = $1 AND removed <> 0`
	archivesWith  = `SELECT run FROM archives WHERE digest = $1 AND removed = 0`
	notedArchives = `SELECT digest FROM pending_files WHERE run = $1 AND policy = $2`
	deleteNoted   = `DELETE FROM pending_files WHERE run = $1 AND policy = $2 AND digest = $3`

	// Of tasks that were removed from a run, how many removals have begun, and how many of
	// these have not ended.
	removalsOfTasks = `SELECT COUNT(*) FROM forgotten WHERE run = $1 AND what = 'task'`
	openRemovals    = removalsOfTasks + ` AND ended = 0`

	unarchivedRuns = selectRuns + ` WHERE status <> 'forgetting' AND NOT EXISTS (SELECT 1 FROM forgotten f WHERE f.run = runs.name AND f.what = 'task' AND f.ended = 0)
AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.run = runs.name AND a.removed <> 0)
AND (status <> 'running' AND finished > 0 AND finished <= $1 AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.run = runs.name AND a.finished = runs.finished)
OR status = 'running' AND created <= $2 AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.run = runs.name AND a.archived > $2)) ORDER BY finished, name`
)

// Archive returns where the histories of a run are kept, or record.ErrNotFound if they were
// not archived yet. It also returns an archive that is being removed.
func (s *Store) Archive(ctx context.Context, run string) (record.Archive, error) {
	a, err := database.One(ctx, s.db.Read(), readArchive, selectArchive, run)
	if err != nil {
		return a, fmt.Errorf("read the archive of run %s: %w", run, notFound(err))
	}
	return a, nil
}

// UnarchivedRuns returns the runs that ended before a time and whose histories were not
// archived since, and those under way that have neither begun nor been archived since
// another time. Runs from which a task is being removed are left out.
func (s *Store) UnarchivedRuns(ctx context.Context, endedBefore, archivedBefore time.Time) ([]record.Run, error) {
	runs, err := database.List(ctx, s.db.Read(), readRun, unarchivedRuns, database.Nanos(endedBefore), database.Nanos(archivedBefore))
	if err != nil {
		return nil, fmt.Errorf("list the runs without an archive: %w", err)
	}
	return runs, nil
}

// RemovedTasks counts the removals of tasks of a run that have begun. PutArchive compares
// it, so that it has to be read before the histories are.
func (s *Store) RemovedTasks(ctx context.Context, run string) (int, error) {
	n, err := database.One(ctx, s.db.Read(), database.Scalar[int], removalsOfTasks, run)
	if err != nil {
		return 0, fmt.Errorf("count the tasks that were removed from run %s: %w", run, err)
	}
	return n, nil
}

// PutArchive puts an archive on record in place of the one that the caller has read before,
// which is the zero value if there was none. It calls publish, which gives the file of the
// archive its name, within the transaction that does so: a removal that begins afterwards finds
// the file, and after one that has begun there is no file. publish may be called more than once,
// and not at all if Digest is empty. The file has to be noted; it no longer is afterwards, and
// that of the archive before is.
//
// The error is record.ErrConflict if another process was faster, if the run is no longer as the
// archive says, if tasks were removed from it other than those that the caller has counted, or
// if the file is not noted. It is record.ErrForgotten if the run was forgotten. If Archived is
// zero, it is set to the current time.
func (s *Store) PutArchive(ctx context.Context, a, before record.Archive, removedTasks int, publish func() error) error {
	finished, now := database.Nanos(a.Finished), database.Nanos(orNow(a.Archived))
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, a.Run); err != nil {
			return err
		}
		if err := refuseOtherRun(t, a, removedTasks); err != nil {
			return err
		}
		n, err := t.Exec(putArchive, a.Run, finished, a.Digest, a.Bytes, a.Histories, a.Events, now, before.Digest, database.Nanos(before.Finished))
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: another one is on record", record.ErrConflict)
		}
		if a.Digest != "" {
			noted, err := t.Exec(deleteNoted, a.Run, record.HistoriesPolicy, a.Digest)
			if err == nil && noted == 0 { // nobody would find the file if this process died before the commit
				err = fmt.Errorf("%w: its file is no longer noted", record.ErrConflict)
			}
			if err == nil {
				err = publish()
			}
			if err != nil {
				return err
			}
		}
		if before.Digest != "" && before.Digest != a.Digest {
			if _, err := t.Exec(insertPending, a.Run, record.HistoriesPolicy, 0, before.Digest, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put the archive of run %s: %w", a.Run, err)
	}
	return nil
}

// refuseOtherRun returns record.ErrConflict if a run is not the one that was archived any
// more. It runs after refuseRemoved, which keeps removals from beginning.
func refuseOtherRun(t database.Tx, a record.Archive, removedTasks int) error {
	r, err := database.One(t.Ctx, t, readRun, selectRun, a.Run)
	if err != nil {
		return notFound(err)
	}
	if !r.Finished.Equal(a.Finished) {
		return fmt.Errorf("%w: the run is %s, and was archived otherwise", record.ErrConflict, r.Status)
	}
	begun, err := database.One(t.Ctx, t, database.Scalar[int], removalsOfTasks, a.Run)
	if err != nil {
		return err
	}
	open, err := database.One(t.Ctx, t, database.Scalar[int], openRemovals, a.Run)
	if err != nil {
		return err
	}
	if begun != removedTasks || open > 0 {
		return fmt.Errorf("%w: a task was removed from it meanwhile", record.ErrConflict)
	}
	return nil
}

// NoteArchive records that a file with histories of a run is about to be stored, so that the
// file is found if its writer dies. A forgotten run is record.ErrForgotten.
func (s *Store) NoteArchive(ctx context.Context, run, digest string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, run); err != nil {
			return err
		}
		_, err := t.Exec(insertPending, run, record.HistoriesPolicy, 0, digest, database.Nanos(time.Now()))
		return err
	})
	if err != nil {
		return fmt.Errorf("note archive %s of run %s: %w", digest, run, err)
	}
	return nil
}

// DropArchive calls remove unless an archive on record has the digest, and forgets that the
// file was noted. Until remove returns, no archive is put on record.
func (s *Store) DropArchive(ctx context.Context, run, digest string, remove func() error) error {
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if t.ForUpdate != "" { // SQLite has one writer at a time anyway
			if _, err := t.Exec(`LOCK TABLE archives IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		users, err := database.List(t.Ctx, t, database.Scalar[string], archivesWith, digest)
		if err != nil {
			return err
		}
		if len(users) == 0 {
			if err := remove(); err != nil {
				return err
			}
		}
		_, err = t.Exec(deleteNoted, run, record.HistoriesPolicy, digest)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop archive %s of run %s: %w", digest, run, err)
	}
	return nil
}

// BeginRemovingArchive marks the archive of a run as being removed, and returns the digests of
// the files that have histories of the run, also of those that were only noted. From then on
// nothing needs the files. It is no error if there are none.
func (s *Store) BeginRemovingArchive(ctx context.Context, run string) (digests []string, err error) {
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if _, err := t.Exec(removeArchive, run, database.Nanos(time.Now())); err != nil {
			return err
		}
		if digests, err = database.List(t.Ctx, t, database.Scalar[string], notedArchives, run, record.HistoriesPolicy); err != nil {
			return err
		}
		a, err := database.One(t.Ctx, t, readArchive, selectArchive, run)
		if err = notFound(err); errors.Is(err, record.ErrNotFound) {
			return nil
		}
		if a.Digest != "" {
			digests = append(digests, a.Digest)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin to remove the archive of run %s: %w", run, err)
	}
	return digests, nil
}

// EndRemovingArchive removes the row of an archive whose file is gone. Histories that Temporal
// still has may be archived anew.
func (s *Store) EndRemovingArchive(ctx context.Context, run string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := t.Exec(deleteArchive, run)
		return err
	})
	if err != nil {
		return fmt.Errorf("end to remove the archive of run %s: %w", run, err)
	}
	return nil
}

func readArchive(row database.Scan) (a record.Archive, err error) {
	err = row(&a.Run, at(&a.Finished), &a.Digest, &a.Bytes, &a.Histories, &a.Events, at(&a.Archived), at(&a.Removed))
	return a, err
}
