package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// FileCopy names an SQLite file, and a file that does not exist yet and gets its copy.
type FileCopy struct{ From, To string }

const (
	// firstLock is how long the first of several files is waited for, in milliseconds, while
	// nothing is locked.
	firstLock = 1000
	// laterLock is how long another file is waited for, in milliseconds, while those before
	// it are locked. So nobody waits longer for a lock than this, for each other file.
	laterLock = 100
	// lockTries is how often the locks are tried: all are released between two tries.
	lockTries = 50
	// pagesAtOnce is how many pages are copied before the context is looked at.
	pagesAtOnce = 1024
)

// CopyTogether copies SQLite files as they were at one moment, which is the same for all of
// them. For that moment it locks all files against writers, for some milliseconds; while it
// copies, others write and read. The files have to use SQLite's log (WAL), which grows
// meanwhile. The copies are on the disk when it returns. If it fails, parts of copies may be
// left.
func CopyTogether(ctx context.Context, files ...FileCopy) (err error) {
	var sources []*source
	defer func() {
		for _, s := range sources {
			err = errors.Join(err, s.close())
		}
	}()
	for i, f := range files {
		wait := laterLock
		if i == 0 {
			wait = firstLock
		}
		s, err := openSource(ctx, f, wait)
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.From, damaged(f.From, err))
		}
		sources = append(sources, s)
	}
	if err := holdTogether(ctx, sources); err != nil {
		return err
	}
	for _, s := range sources {
		if err := s.copy(ctx); err != nil {
			return fmt.Errorf("copy %s to %s: %w", s.From, s.To, damaged(s.From, err))
		}
	}
	return nil
}

// holdTogether begins to read all files at the same moment.
func holdTogether(ctx context.Context, sources []*source) error {
	for try := 1; ; try++ {
		busy, err := lockAll(ctx, sources)
		if err != nil || !busy {
			return err
		}
		if try == lockTries {
			return errors.New("copy databases: other processes write to them all the time: try again when they are less busy")
		}
	}
}

// lockAll locks all files, begins to read them, and releases the locks. busy says that a
// file was locked by others for too long; nothing is locked or read then.
func lockAll(ctx context.Context, sources []*source) (busy bool, err error) {
	locked := 0
	defer func() {
		for _, s := range sources[:locked] {
			_, failure := s.lock.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			err = errors.Join(err, failure)
		}
	}()
	for _, s := range sources {
		_, err := s.lock.ExecContext(ctx, "BEGIN IMMEDIATE")
		var failed *driver.Error
		if errors.As(err, &failed) && failed.Code()&primaryCode == lib.SQLITE_BUSY {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("lock %s: %w", s.From, damaged(s.From, err))
		}
		locked++
	}
	for _, s := range sources {
		if err := s.hold(ctx); err != nil {
			return false, fmt.Errorf("read %s: %w", s.From, damaged(s.From, err))
		}
	}
	return false, nil
}

// source is a file that is copied: a connection that locks it for a moment, and one that
// reads it as it was then.
type source struct {
	FileCopy
	db         *sql.DB
	lock, read *sql.Conn
}

// openSource connects twice to a file. wait is how many milliseconds a statement waits for
// others.
func openSource(ctx context.Context, f FileCopy, wait int) (*source, error) {
	if _, err := os.Stat(f.From); err != nil {
		return nil, err // SQLite would only say that it can't open it
	}
	db, err := sql.Open("sqlite", fileURL(f.From, url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(" + strconv.Itoa(wait) + ")"}}))
	if err != nil {
		return nil, err
	}
	s := &source{FileCopy: f, db: db}
	if s.lock, err = db.Conn(ctx); err == nil {
		s.read, err = db.Conn(ctx)
	}
	var mode string
	if err == nil {
		err = s.read.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	}
	if err == nil && mode != "wal" {
		err = fmt.Errorf("its journal mode is %q: start a stack on it once, which sets it", mode)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// hold begins to read: from now on the connection sees the file as it is now.
func (s *source) hold(ctx context.Context) error {
	if _, err := s.read.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	var tables int
	return s.read.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master").Scan(&tables)
}

// copy writes what the reading connection sees. SQLite goes on with the pages of the same
// moment, because the connection reads within a transaction.
func (s *source) copy(ctx context.Context) error {
	to := fileURL(s.To, url.Values{"_pragma": {"journal_mode(off)", "synchronous(off)"}}) // a copy that is cut off is of no use
	err := s.read.Raw(func(c any) error {
		b, err := c.(interface {
			NewBackup(string) (*driver.Backup, error)
		}).NewBackup(to)
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			if err = context.Cause(ctx); err == nil {
				more, err = b.Step(pagesAtOnce)
			}
		}
		return errors.Join(err, b.Finish())
	})
	if err != nil {
		return err
	}
	if _, err := s.read.ExecContext(ctx, "ROLLBACK"); err != nil {
		return err
	}
	f, err := os.Open(s.To)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (s *source) close() error {
	var all []error
	for _, conn := range []*sql.Conn{s.lock, s.read} {
		if conn != nil {
			all = append(all, conn.Close())
		}
	}
	return errors.Join(append(all, s.db.Close())...)
}

// SchemaNumber returns the number of the schema that this program needs.
func SchemaNumber() (int, error) { return schemaNumber() }
