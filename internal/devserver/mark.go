package devserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// databaseFile is the name of the database in the directory of a server.
const databaseFile = "temporal.db"

// uriPath writes a path for SQLite's file URIs, in which ?, # and % mean
// something.
func uriPath(path string) string {
	return (&url.URL{Path: path}).EscapedPath()
}

// The mark has a table of its own, which the server does not know.
const (
	createMark = `CREATE TABLE IF NOT EXISTS fulgurite_mark (one INTEGER PRIMARY KEY, mark INTEGER NOT NULL)`
	selectMark = `SELECT COALESCE(MAX(mark), 0) FROM fulgurite_mark`
	writeMark  = `INSERT INTO fulgurite_mark (one, mark) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET mark = excluded.mark`
)

// Mark returns the number that SetMark has stored in the directory's database, at first 0.
// It says from which time a database is that may have come from a backup.
func (s *Server) Mark(ctx context.Context) (mark int64, err error) {
	err = s.withDatabase(ctx, func(db *sql.DB) error { return db.QueryRowContext(ctx, selectMark).Scan(&mark) })
	return mark, err
}

// SetMark stores a number in the directory's database.
func (s *Server) SetMark(ctx context.Context, mark int64) error {
	return s.withDatabase(ctx, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, writeMark, mark)
		return err
	})
}

func (s *Server) withDatabase(ctx context.Context, work func(*sql.DB) error) (err error) {
	db, err := sql.Open("sqlite", "file:"+uriPath(filepath.Join(s.options.Dir, databaseFile))+"?"+url.Values{
		"mode": {"rw"}, "_pragma": {"busy_timeout(10000)"},
	}.Encode())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err = db.ExecContext(ctx, createMark); err == nil {
		err = work(db)
	}
	if err != nil {
		return fmt.Errorf("mark of Temporal's database: %w", err)
	}
	return nil
}

// ErrInUse says that another server has the directory.
var ErrInUse = errors.New("directory is in use by another server")

// ErrLost says that the directory was removed, or replaced by another one, while the
// server had it. What the server writes from then on can't be found any more.
var ErrLost = errors.New("directory was removed or replaced while the server had it")

const lockFile = "temporal.lock"

// lock takes dir for this server. The lock is the kernel's and ends with the
// returned file or with the process; the number in the file is for people.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := exclude(f); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w: process %s has it", ErrInUse, holder(f))
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// probeTime is how long the lock may be held by a process that only asks whether another
// one has it (Holder).
const probeTime = 200 * time.Millisecond

// exclude takes the kernel's lock.
func exclude(f *os.File) error {
	for deadline := time.Now().Add(probeTime); ; time.Sleep(probeTime / 20) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

// Holder returns the process id of the server that has a directory. It returns "" if none
// has it, and "unknown" in the instant before the server has written its id.
func Holder(dir string) (_ string, err error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // this also releases the lock
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return holder(f), nil
	}
	return "", err
}

// CheckDirectory returns nil while the directory is the one that this server has locked,
// and ErrLost once it was removed or replaced. Call it only before Stop. For a server
// without a directory it always returns nil.
func (s *Server) CheckDirectory() error {
	if s.lock == nil {
		return nil
	}
	locked, err := s.lock.Stat()
	if err != nil {
		return fmt.Errorf("look at the lock of %s: %w", s.options.Dir, err)
	}
	there, err := os.Stat(filepath.Join(s.options.Dir, lockFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(locked, there):
		return fmt.Errorf("%s: %w", s.options.Dir, ErrLost)
	case err != nil:
		return fmt.Errorf("look at the lock of %s: %w", s.options.Dir, err)
	}
	return nil
}

// holder reads who has the lock. It can be empty for the instant between the
// holder's locking and its writing.
func holder(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}
